"""Decodes a text again in passes of any width, to show what the width alone changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec.decoding.constraint import BoolArray
from edgedec.decoding.session import Model, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError

WIDTHS = (2, 3, 4, 5, 8)
# Only tokens that could win are compared.
CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class WidthChanges:
    """Changes in the likeliest tokens' values when passes have several rows, for one text.

    Attributes:
        gaps: absolute changes of each candidate's distance from the best token, in logits,
            ``[widths, positions, candidates - 1]``.
        logprobs: absolute changes of the candidates' log-probabilities, and of the text's own
            token's, in nats, ``[widths, positions, candidates + 1]``.

    """

    gaps: FloatArray
    logprobs: FloatArray


def replay(model: Model, prompt: Sequence[int], text: Sequence[int], width: int) -> FloatArray:
    """Return logits that predict each token of ``text``, in passes of ``width`` rows.

    Shape ``[len(text), vocab]``, float32.
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
                raise InputError("this runtime returns no logits: near-ties cannot be recognised")
            rows.append(scored.logits.copy())
            session.commit(list(range(len(tree))))
    finally:
        session.close()
    return np.concatenate(rows)


def width_changes(
    model: Model, prompt: Sequence[int], text: Sequence[int], last: BoolArray | None = None
) -> WidthChanges:
    """Return what passes of several rows change in a text.

    Args:
        model: the target.
        prompt, text: token ids.
        last: the tokens that may be candidates for the last place, ``[vocab]``; None is all.

    """
    single = replay(model, prompt, text, 1)
    best = np.argsort(-single, axis=1, kind="stable")[:, :CANDIDATES]
    if last is not None:
        ranked = np.argsort(-np.where(last, single[-1], -np.inf), kind="stable")
        # Where fewer are allowed, the best one stands in and changes nothing.
        best[-1] = np.where(last[ranked[:CANDIDATES]], ranked[:CANDIDATES], ranked[0])
    named = np.column_stack([best, np.asarray(text)])
    gaps, logprobs = _gaps(single, best), _logprobs(single, named)
    gap_changes, logprob_changes = [], []
    for width in WIDTHS:
        rows = replay(model, prompt, text, width)
        gap_changes.append(np.abs(_gaps(rows, best) - gaps))
        logprob_changes.append(np.abs(_logprobs(rows, named) - logprobs))
    return WidthChanges(np.stack(gap_changes), np.stack(logprob_changes))


def _gaps(logits: FloatArray, ids: Any) -> FloatArray:
    chosen: FloatArray = np.take_along_axis(logits, ids, axis=1)
    gaps: FloatArray = chosen[:, :1] - chosen[:, 1:]
    return gaps


def _logprobs(logits: FloatArray, ids: Any) -> FloatArray:
    best = logits.max(axis=1, keepdims=True)
    total = best + np.log(np.exp(logits - best).sum(axis=1, keepdims=True, dtype=np.float64))
    chosen: FloatArray = np.take_along_axis(logits, ids, axis=1) - total.astype(np.float32)
    return chosen
