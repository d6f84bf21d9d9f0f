"""Times passes of several sessions in turn, since only ratios within one run are meaningful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree


def pass_times(
    sessions: Mapping[str, Session], tokens: Sequence[int], read: int, rows: Sequence[int],
    turns: int,
) -> dict[str, dict[int, list[float]]]:  # fmt: skip
    """Return seconds of passes by session and rows.

    Args:
        sessions: by name, empty.
        tokens: at least ``read`` plus the largest number of rows.
        read: number of tokens to prefill before the passes.
        rows: widths of the passes.
        turns: passes of each width.

    """
    for session in sessions.values():
        session.prefill(tokens[:read])
    found: dict[str, dict[int, list[float]]] = {
        name: {width: [] for width in rows} for name in sessions
    }
    for _ in range(turns):
        for width in rows:
            tree = TokenTree.chain(tokens[read : read + width])
            for name, session in sessions.items():
                begin = perf_counter()
                session.forward(tree, want=Want.TOP)
                found[name][width].append(perf_counter() - begin)
                session.rollback(read)
    return found
