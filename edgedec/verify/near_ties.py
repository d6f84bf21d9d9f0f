"""Finds near-ties: divergences that the width of a pass can cause.

A row's logits can depend on how many rows its pass has. The effect is measured by decoding texts of
other prompts, and the text in question, in passes of several rows, without speculation. A different
token is a **near-tie** if a change of that size also makes plain decoding choose it, after
penalties, filters and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec.decoding.constraint import BoolArray, Constraint
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError

PERCENTILE = 99.9
# Prompts that the changes are measured on.
SAMPLE = 8
# Factor of the largest measured change by which a reported log-probability may differ.
_LOGPROB_MARGIN = 2.0
# The largest gap between two tokens that is called a near-tie, in logits: the likelier one is at
# most 1.3 times as likely. Passes that change more decide texts, whether or not it is by rounding.
LARGEST_NEAR_TIE = 0.25
# Largest difference of a log-probability, in nats, that is called rounding.
_LARGEST_LOGPROB_CHANGE = 2 * LARGEST_NEAR_TIE
_LARGEST_GAP = 1e4
_HALVINGS = 30


class NearTies:
    """Computes how large a change of logits is needed to explain another token.

    The model is opened as for plain decoding, which has generated a text after each prompt.
    """

    def __init__(
        self, model: Model, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._texts = texts
        self._changes: dict[int, WidthChanges] = {}

    def tolerance(
        self, number: int, text: Sequence[int], constraint: Constraint | None = None
    ) -> float:
        """Return how much the width of a pass changes a gap between two tokens, in logits.

        It is the larger of the 99.9th percentile on the other prompts (on this one, if it is alone)
        and the largest change at the last token of ``text`` itself. Rounding at the edge of a
        quantised activation is rare and large, so other texts alone may not show it. It is never
        more than ``LARGEST_NEAR_TIE``. With a constraint, see ``gap``, the tokens compared there
        are those that it allows.
        """
        gaps = np.concatenate([one.gaps.ravel() for one in self._elsewhere(number)])
        allowed = None
        if constraint is not None:
            constraint = constraint.twin()
            constraint.push(text[:-1])
            allowed = constraint.allowed([])
        own = width_changes(self._model, self._prompts[number], text, allowed).gaps[:, -1]
        return min(LARGEST_NEAR_TIE, max(float(np.percentile(gaps, PERCENTILE)), float(own.max())))

    def logprob_tolerances(self, number: int, text: Sequence[int]) -> FloatArray:
        """Return how much the log-probabilities at each token of ``text`` may differ, in nats.

        Twice the largest change, measured on the same texts.
        """
        elsewhere = max(float(one.logprobs.max()) for one in self._elsewhere(number))
        own = width_changes(self._model, self._prompts[number], text).logprobs.max(axis=(0, 2))
        bounds: FloatArray = _LOGPROB_MARGIN * np.maximum(own, elsewhere)
        return np.minimum(bounds, _LARGEST_LOGPROB_CHANGE)

    def gap(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        text: Sequence[int],
        tokens: tuple[int, int],
        constraint: Constraint | None = None,
    ) -> float | None:
        """Return the smallest change of gaps between logits that turns one token into the other.

        Args:
            params: how the token is chosen.
            text: the tokens between the prompt and the two that differ.
            tokens: the choices of plain decoding and of the other side.
            constraint: of the text, in its initial state, which is not changed; tokens that it
                refuses are never chosen.

        Returns:
            Logits; None if decoding the text again does not choose the first of them, or no change
            chooses the second.

        """
        row = rescore(self._model, prompt, [*text, tokens[0]], 1)[-1]
        twin = None if constraint is None else constraint.twin()
        sampler = Sampler(params, len(row), prompt, constraint=twin)
        sampler.push(text)
        if _drawn(sampler, row) != tokens[0]:
            return None

        def explains(change: float) -> bool:
            return any(_drawn(sampler, one) == tokens[1] for one in _changed(row, tokens, change))

        return _smallest(explains)

    def _elsewhere(self, number: int) -> list[WidthChanges]:
        others = [n for n in range(len(self._prompts)) if n != number] or [number]
        for other in others[:SAMPLE]:
            if other not in self._changes:
                self._changes[other] = width_changes(
                    self._model, self._prompts[other], self._texts[other]
                )
        return [self._changes[other] for other in others[:SAMPLE]]


def _smallest(explains: Callable[[float], bool]) -> float | None:
    """Return the smallest explaining change, to a relative 1e-9; None if there is none."""
    enough = 1e-6
    while not explains(enough):
        enough *= 2
        if enough > _LARGEST_GAP:
            return None
    too_little = 0.0
    for _ in range(_HALVINGS):
        middle = (too_little + enough) / 2
        if explains(middle):
            enough = middle
        else:
            too_little = middle
    return enough


def _changed(row: FloatArray, tokens: tuple[int, int], change: float) -> Iterator[FloatArray]:
    """Yield rows in which no gap between two logits differs from the given row's by more.

    Besides the two tokens' own logits, those of all likelier tokens move together, which is what
    pushes a token over the edge of top-p or min-p.
    """
    ours, theirs = tokens
    step = np.float32(change)
    for chosen, by in (
        (np.arange(len(row)) == theirs, step),
        (np.arange(len(row)) == ours, -step),
        (row > row[theirs], -step),
        (row > row[ours], step),
    ):
        yield np.where(chosen, row + by, row)


def _drawn(sampler: Sampler, row: FloatArray) -> int:
    """Return the token that plain decoding chooses from this row."""
    best = np.array([[int(row.argmax())]])
    scored = Pass(0, best, row[best[0]][None], row[None])
    return sampler.rows(scored, TokenTree.chain([sampler.history[-1]]), Purpose.TARGET).draw(0)


# -- decoding a text again in passes of any width, to show what the width alone changes ---------

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


def rescore(model: Model, prompt: Sequence[int], text: Sequence[int], width: int) -> FloatArray:
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
    """Return how logits of a text change in passes of several rows.

    ``last`` ``[vocab]`` are the tokens that may be candidates for the last place; None is all.
    """
    single = rescore(model, prompt, text, 1)
    best = np.argsort(-single, axis=1, kind="stable")[:, :CANDIDATES]
    if last is not None:
        ranked = np.argsort(-np.where(last, single[-1], -np.inf), kind="stable")
        # If fewer are allowed, the best one takes their place, which changes nothing.
        best[-1] = np.where(last[ranked[:CANDIDATES]], ranked[:CANDIDATES], ranked[0])
    named = np.column_stack([best, np.asarray(text)])
    gaps, logprobs = _gaps(single, best), _logprobs(single, named)
    gap_changes, logprob_changes = [], []
    for width in WIDTHS:
        rows = rescore(model, prompt, text, width)
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
