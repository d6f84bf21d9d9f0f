"""A text decoded again in passes of any width: what the width alone changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgedec.decoding.session import Model, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError

WIDTHS = (2, 3, 4, 5, 8)
# Gaps are looked at among the tokens that could win.
CANDIDATES = 8


def replay(model: Model, prompt: Sequence[int], text: Sequence[int], width: int) -> FloatArray:
    """Logits that predict each token of ``text``, in passes of ``width`` rows.

    Returns ``[len(text), vocab]`` float32.
    """
    inputs = [prompt[-1], *text[:-1]]
    session = model.open(len(prompt) + len(text) - 1)
    rows: list[FloatArray] = []
    try:
        session.prefill(prompt[:-1])
        for start in range(0, len(inputs), width):
            tree = TokenTree.chain(inputs[start : start + width])
            scored = session.forward(tree, want=Want.TOP | Want.LOGITS)
            if scored.logits is None:
                raise InputError("this runtime gives no logits: near-ties cannot be told")
            rows.append(scored.logits.copy())
            session.commit(list(range(len(tree))))
    finally:
        session.close()
    return np.concatenate(rows)


def width_changes(model: Model, prompt: Sequence[int], text: Sequence[int]) -> FloatArray:
    """How much passes of several rows change the gaps between likely tokens and the best.

    Returns one absolute change per position, candidate and width, float32.
    """
    single = replay(model, prompt, text, 1)
    best = np.argsort(-single, axis=1, kind="stable")[:, :CANDIDATES]
    gaps = _gaps(single, best)
    changes = [np.abs(_gaps(replay(model, prompt, text, w), best) - gaps) for w in WIDTHS]
    pooled: FloatArray = np.concatenate(changes).ravel()
    return pooled


def _gaps(logits: FloatArray, ids: Any) -> FloatArray:
    chosen: FloatArray = np.take_along_axis(logits, ids, axis=1)
    gaps: FloatArray = chosen[:, :1] - chosen[:, 1:]
    return gaps
