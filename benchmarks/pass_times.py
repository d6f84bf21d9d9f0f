"""Times passes of several sessions in turn, since only ratios within one run are meaningful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgedec.decoding.pass_times import time_pass
from edgedec.decoding.session import Session, Want


def pass_times(
    sessions: Mapping[str, Session], tokens: Sequence[int], context: int, rows: Sequence[int],
    turns: int, want: Want = Want.TOP,
) -> dict[str, dict[int, list[float]]]:  # fmt: skip
    """Return seconds of passes by session and rows.

    Args:
        sessions: by name, empty.
        tokens: at least ``context`` plus the largest number of rows.
        context: number of tokens to prefill before the passes.
        rows: widths of the passes.
        turns: passes of each width.
        want: what they return.

    """
    for session in sessions.values():
        session.prefill(tokens[:context])
    found: dict[str, dict[int, list[float]]] = {
        name: {width: [] for width in rows} for name in sessions
    }
    for _ in range(turns):
        for width in rows:
            for name, session in sessions.items():
                chain = tokens[context : context + width]
                found[name][width].append(time_pass(session, chain, want=want))
    return found
