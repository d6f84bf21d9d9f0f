"""Turning passes into tokens for one request, shared by target and draft."""

from __future__ import annotations

import dataclasses

from edgedec.decoding.noise import noise_bytes
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling.rows import Rows
from edgedec.decoding.sampling.state import SamplingState
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import TokenTree

# A score is a float32, kept for each row that penalties, filters or noise of all tokens apply to.
_SCORE_BYTES = 4


class Sampler(SamplingState):
    """Draws the tokens of one text from the passes over it."""

    def twin(self) -> Sampler:
        """Return a copy of the same seed and text so far, which counts as its prompt.

        The two share no mutable state, so another thread may draw with it.
        """
        params = dataclasses.replace(self.params, seed=self.streams.seed)
        return Sampler(
            params,
            self.vocab_size,
            self.history,
            coupled=self.streams.coupled,
            constraint=None if self.constraint is None else self.constraint.twin(),
        )

    def rows(self, scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
        """Return rows over a pass; a node of depth d predicts position ``len(history) + d``."""
        return Rows(self, scored, tree, purpose)


def sampler_bytes(vocab_size: int, rows: int) -> int:
    """Return the bytes that sampling keeps: noise, and the scores of a pass's rows."""
    return noise_bytes(vocab_size) + _SCORE_BYTES * rows * vocab_size
