"""Constrained texts have the masked, renormalised distribution with every rule and drafter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.certificate.distribution import Wary, bushy
from benchmarks.certificate.enumerable import SUSPICIOUS, Setting, expected, observed, p_value
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, SpeculativeSampling
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, filters
from edgedec.decoding.tree import FloatArray

pytestmark = pytest.mark.statistical

# In state 3 a token is forced.
TABLE = {0: {0: 1, 1: 3, 2: 2}, 1: {1: 0, 2: 0, 3: 2}, 2: {0: 0, 3: 1, 1: 2}, 3: {2: 0}}
HONEST = {
    "plain": Setting(GumbelCoupling(), "none", table=TABLE),
    "coupling, chain": Setting(GumbelCoupling(), table=TABLE),
    "coupling, chain, top-k": Setting(GumbelCoupling(), top_k=2, table=TABLE),
    "coupling, tree": Setting(GumbelCoupling(), "tree", bushy, table=TABLE),
    "coupling, lookup": Setting(GumbelCoupling(), "lookup", table=TABLE),
    "match, recycling tree": Setting(SampleAndMatch(), "recycle", bushy, table=TABLE),
    "speculative, chain": Setting(SpeculativeSampling(), table=TABLE),
    "speculative, top-k": Setting(SpeculativeSampling(), temperature=0.5, top_k=2, table=TABLE),
    "speculative, penalty": Setting(SpeculativeSampling(), frequency_penalty=1.0, table=TABLE),
    "speculative, lookup": Setting(SpeculativeSampling(), "lookup", table=TABLE),
    "recursive rejection, tree": Setting(SpeculativeSampling(), "tree", bushy, table=TABLE),
    "speculative, adaptive": Setting(
        SpeculativeSampling(), "adaptive", lambda: Wary(0.4), table=TABLE
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_the_distribution_is_the_masked_one(name: str) -> None:
    setting = HONEST[name]
    counts, _ = observed(setting)
    assert p_value(counts, expected(setting)) >= SUSPICIOUS


def masks_after_the_filters(self: Any, node: int) -> Any:
    """Filters act on the free distribution, and the mask on what they leave."""
    row = self._penalised(node) * self._sampler.inverse_temperature
    ids = filters.survivors(row, self._sampler.params)
    left = self._within(node, row)[ids]
    if left.max() == -np.inf:  # nothing of it is allowed
        return None, self._within(node, row)
    return ids, left


def test_renormalising_too_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "_scores", masks_after_the_filters)
    setting = HONEST["coupling, chain, top-k"]
    assert p_value(observed(setting)[0], expected(setting)) < SUSPICIOUS


def test_a_draft_distribution_without_its_mask_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Rows.probs

    def probs(self: Any, node: int) -> FloatArray:
        if self._purpose is Purpose.TARGET:
            return honest(self, node)
        scores = self._penalised(node) * self._sampler.inverse_temperature
        weights: FloatArray = np.exp(scores - scores.max())
        return weights / weights.sum()

    monkeypatch.setattr(Rows, "probs", probs)
    setting = HONEST["speculative, chain"]
    assert p_value(observed(setting)[0], expected(setting)) < SUSPICIOUS
