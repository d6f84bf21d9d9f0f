"""Drafts from another vocabulary leave the distribution of whole texts as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.certificate.distribution import bushy
from benchmarks.certificate.enumerable import (
    DRAFT,
    SUSPICIOUS,
    Setting,
    expected,
    observed,
    p_value,
)
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, SpeculativeSampling
from edgedec.decoding.drafting.base import Drafter, DraftLimits, GoOn, RoundFeedback
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import Draft

pytestmark = pytest.mark.statistical

# The target's token 2 is none of the draft's, and the draft's 2 none of the target's.
COMMON = [0, 1, 3]
PART = Translation.of_ids([0, 1, -1, 3], 4)

HONEST = {
    "speculative, chain": Setting(SpeculativeSampling(), translation=PART),
    "speculative, cold, top-k": Setting(
        SpeculativeSampling(), temperature=0.5, top_k=2, translation=PART
    ),
    "recursive rejection, tree": Setting(SpeculativeSampling(), "tree", bushy, translation=PART),
    "speculative, strings": Setting(SpeculativeSampling(), "strings", translation=PART),
    "speculative, lookup, model": Setting(SpeculativeSampling(), "hybrid", translation=PART),
    "match, strings": Setting(SampleAndMatch(), "strings", translation=PART),
    "coupling, chain": Setting(GumbelCoupling(), translation=PART),
    "coupling, strings": Setting(GumbelCoupling(), "strings", translation=PART),
}


class Wrapped:
    """A drafter around another."""

    def __init__(self, inner: Drafter) -> None:
        self.inner, self.name = inner, inner.name
        self.sampler: Sampler | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self.sampler = sampler
        self.inner.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        return self.inner.propose(root, limits, go_on, streams)

    def observe(self, feedback: RoundFeedback) -> None:
        self.inner.observe(feedback)

    def close(self) -> None:
        self.inner.close()

    def mass(self, draft: Draft, node: int) -> float:
        """What the draft's own distribution gives to common tokens after a node."""
        assert self.sampler is not None
        path = draft.tree.tokens_on(draft.tree.path_to(node)[1:])
        # The draft reads a token that it does not have as its first one.
        said = [token if token in COMMON else 0 for token in [*self.sampler.history, *path]]
        row = DRAFT.logits(said) * self.sampler.inverse_temperature
        weights = np.exp(row - row.max())
        return float(weights[COMMON].sum() / weights.sum())


class LosesTheMassOutside(Wrapped):
    """q is the draft's own, not renormalised over the intersection."""

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        draft = super().propose(root, limits, go_on, streams)
        draft.q = {node: q * np.float32(self.mass(draft, node)) for node, q in draft.q.items()}
        return draft


class SpreadsTheMassOutside(Wrapped):
    """q gives the target's tokens that the draft does not have what is left, though never drawn."""

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        draft = super().propose(root, limits, go_on, streams)
        for node, q in draft.q.items():
            mass = self.mass(draft, node)
            q = q * np.float32(mass)
            q[2] = 1 - mass
            draft.q = {**draft.q, node: q}
        return draft


@pytest.mark.parametrize("name", HONEST)
def test_the_target_s_own(name: str) -> None:
    setting = HONEST[name]
    counts, metrics = observed(setting)
    assert p_value(counts, expected(setting)) > SUSPICIOUS
    assert 0.1 < metrics.acceptance_rate < 0.9, "a draft that is never or always right"
    assert metrics.drafted_tokens > counts.sum()


@pytest.mark.parametrize("twin", [LosesTheMassOutside, SpreadsTheMassOutside])
def test_a_broken_twin_is_flagged(twin: type[Wrapped]) -> None:
    setting = Setting(SpeculativeSampling(), translation=PART, wrap=twin)
    counts, _ = observed(setting)
    assert p_value(counts, expected(setting)) < SUSPICIOUS
