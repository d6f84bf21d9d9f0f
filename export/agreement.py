"""Measures how often a head's first choice is its target's, on the target's own text.

Wrong wiring never fails, it only makes drafts useless; published heads were run at 1% instead of
59% for weeks. So every export measures it, at depths 1 to 3 with the text's own tokens before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedec.decoding.session import (
    BorrowingSession,
    HeadModel,
    HeadSession,
    Lending,
    Model,
    Pass,
    Want,
)
from edgedec.decoding.tree import TokenTree
from edgedec.runtimes.onnx.assistant import open_head
from edgedec.runtimes.onnx.head import HEAD_FILE
from edgedec.runtimes.onnx.model import OnnxModel

DEPTHS = 3
# Below this share at depth 1 a head drafts nothing useful, and most likely reads the wrong states.
POOR = 0.35
_TOKENS, _STEP = 512, 2
_WANTED = Want.TOP | Want.STATES


def agreement(
    folder: Path, texts: Sequence[Sequence[int]], model: Model | None = None
) -> list[float]:
    """Return the share of equal first choices at each depth.

    Args:
        folder: with the graphs of the target and the head.
        texts: written by the target; of all together some hundred tokens are read.
        model: the target in another format, which is closed; it shows the states of the head.

    """
    model = OnnxModel.load(folder, batch_invariant=False) if model is None else model
    head = open_head(folder / HEAD_FILE)
    equal, tried, left = [0] * DEPTHS, [0] * DEPTHS, _TOKENS
    longest = head.info.max_context - DEPTHS
    try:
        for text in texts:
            read = list(text[: min(left, longest)])
            left -= len(read)
            if len(read) > DEPTHS + 2:
                _count(model, head, read, equal, tried)
    finally:
        head.close()
        model.close()
    return [round(a / max(b, 1), 4) for a, b in zip(equal, tried, strict=True)]


def _count(
    model: Model, head: HeadModel, text: list[int], equal: list[int], tried: list[int]
) -> None:
    """Count equal first choices at each depth, from every few tokens of a text on."""
    session = model.open(len(text))
    scored = session.forward(TokenTree.chain(text), want=_WANTED)
    choices = scored.top_ids[:, 0].tolist()
    assert scored.states is not None
    carried, own = head.fuse(scored.states), head.open(len(text) + DEPTHS)
    session.rollback(0)
    borrows, done = isinstance(own, BorrowingSession), 0
    if isinstance(own, BorrowingSession) and isinstance(session, Lending):
        own.borrow(session)
    for last in range(_STEP - 1, len(text) - DEPTHS - 1, _STEP):
        if borrows:  # the last pair alone, behind what the target has read
            session.prefill(text[done : last + 1])
            done = last
        # Pair p is token p + 1 with the state of token p.
        tree = TokenTree.chain(text[done + 1 : last + 2])
        own.carry(carried[done : last + 1])
        row = own.forward(tree, 0, _WANTED)
        for depth in range(DEPTHS):
            equal[depth] += int(row.top_ids[-1, 0]) == choices[last + 1 + depth]
            tried[depth] += 1
            if depth < DEPTHS - 1:
                row = _further(own, tree, row, text[last + 2 + depth])
        own.commit(() if borrows else range(last + 1 - done))
        done = last + 1
    own.close()
    session.close()


def _further(own: HeadSession, tree: TokenTree, row: Pass, token: int) -> Pass:
    """Compute the row below the last one, which reads what that one hands on."""
    assert row.states is not None
    own.carry(row.states[-1:].copy())
    start = len(tree)
    tree.add(token, start - 1)
    return own.forward(tree, start, _WANTED)
