"""The expected speed with a draft model, by costs alone, is what the policy then reaches."""

from __future__ import annotations

import random

import pytest
from kinds import each_once

from edgedec.decoding.policy import CostCurve
from edgedec.decoding.policy.cost import LiveCost
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate, expected_rate

FLAT = CostCurve((1, 17), (1.0, 1.0))
CURVES = [FLAT, CostCurve((1, 4, 8, 17), (1.0, 1.5, 2.2, 3.5)), CostCurve((1, 17), (1.2, 1.6))]
LINEAR = CostCurve((1, 2, 17), (1.0, 2.0, 17.0))


def simulated(curve: CostCurve, draft_s: float, price: float, rounds: int = 15_000) -> float:
    """Decode with the policy's thresholds at a price, and return tokens per second."""
    rng, drafter = random.Random(0), DrafterEstimate("model", draft_s, branching=False)
    drafter.plan(LiveCost(curve, 16), price)
    tokens = seconds = 0.0
    for _ in range(rounds):
        drafted, reach, right = 0, 1.0, True
        accepted = 0
        while drafted < 16 and drafter.worth_a_peek(drafted, reach):
            seconds += draft_s
            chance = rng.choice(drafter.bins).chance
            if reach * chance < drafter.prices[drafted]:
                break
            reach, drafted = reach * chance, drafted + 1
            right = right and rng.random() < chance
            accepted += right
        tokens, seconds = tokens + 1 + accepted, seconds + curve.at(drafted + 1)
    return tokens / seconds


@pytest.mark.parametrize(("curve", "draft_s"), each_once(CURVES, [0.01, 0.1]))
def test_it_is_what_rounds_by_the_same_rule_yield(curve: CostCurve, draft_s: float) -> None:
    rate = expected_rate(curve, draft_s)
    assert rate == pytest.approx(simulated(curve, draft_s, rate), rel=0.06)
    # Control: a rule for another price yield less, and the plain speed is far from it.
    assert simulated(curve, draft_s, 1e6) < 0.97 * rate
    assert rate > 1.2 / curve.at(1)


def test_where_no_draft_pays_it_is_plain_decodings() -> None:
    assert expected_rate(LINEAR, 0.1) == pytest.approx(1.0, rel=2e-3)
    assert expected_rate(FLAT, 50.0) == pytest.approx(1.0, rel=2e-3)


def test_cheaper_drafts_and_cheaper_passes_are_expected_to_be_faster() -> None:
    assert expected_rate(FLAT, 0.01) > 1.1 * expected_rate(FLAT, 0.1)
    dear = CostCurve((1, 17), (1.0, 3.0))
    assert expected_rate(FLAT, 0.01) > 1.1 * expected_rate(dear, 0.01)
