"""Finds near-ties: divergences that the width of a pass can cause.

A row's logits can depend on how many rows its pass has. The effect is measured by decoding texts of
other prompts, and the text in question, in passes of several rows, without speculation. A different
token is a **near-tie** if a change of that size also makes plain decoding choose it, after
penalties, filters and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgedec.bench.verification.width_changes import WidthChanges, replay, width_changes
from edgedec.decoding.constraint import Constraint
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Model, Pass
from edgedec.decoding.tree import FloatArray, TokenTree

PERCENTILE = 99.9
# Prompts that the changes are measured on.
SAMPLE = 8
# Factor of the largest measured change by which a reported log-probability may differ.
_LOGPROB_MARGIN = 2.0
# Rounding changes less than this, in logits or nats; a runtime with incorrect wide passes changes
# more.
_ROUNDING = 1.0
_LARGEST_GAP = 1e4
_HALVINGS = 30


class NearTies:
    """Computes how large a change of logits is needed to explain another token.

    Args:
        model: the target, opened as plain decoding opens it.
        prompts: token ids of each prompt.
        texts: token ids that plain decoding wrote after each.

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
        quantised activation is rare and large, so other texts alone may not show it. With a
        constraint, see ``gap``, the tokens compared there are those that it allows.
        """
        gaps = np.concatenate([one.gaps.ravel() for one in self._elsewhere(number)])
        allowed = None
        if constraint is not None:
            constraint = constraint.twin()
            constraint.push(text[:-1])
            allowed = constraint.allowed([])
        own = width_changes(self._model, self._prompts[number], text, allowed).gaps[:, -1]
        return min(_ROUNDING, max(float(np.percentile(gaps, PERCENTILE)), float(own.max())))

    def logprob_tolerances(self, number: int, text: Sequence[int]) -> FloatArray:
        """Return how much the log-probabilities at each token of ``text`` may differ, in nats.

        Twice the largest change, measured on the same texts.
        """
        elsewhere = max(float(one.logprobs.max()) for one in self._elsewhere(number))
        own = width_changes(self._model, self._prompts[number], text).logprobs.max(axis=(0, 2))
        bounds: FloatArray = _LOGPROB_MARGIN * np.maximum(own, elsewhere)
        return np.minimum(bounds, _ROUNDING)

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
            prompt: the prompt's token ids.
            text: the tokens between the prompt and the two that differ.
            tokens: the choices of plain decoding and of the other side.
            constraint: of the text, at its beginning, where it stays; what it refuses is never
                chosen, however likely.

        Returns:
            Logits; None if decoding the text again does not choose the first of them, or no change
            chooses the second.

        """
        row = replay(self._model, prompt, [*text, tokens[0]], 1)[-1]
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
    """Return the smallest change that explains, to a relative 1e-9; None if none does."""
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
    """Return what plain decoding chooses by this row."""
    best = np.array([[int(row.argmax())]])
    scored = Pass(0, best, row[best[0]][None], row[None])
    return sampler.rows(scored, TokenTree.chain([sampler.history[-1]]), Purpose.TARGET).draw(0)
