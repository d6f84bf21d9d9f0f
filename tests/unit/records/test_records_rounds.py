"""Acceptance by position, counted round by round."""

import numpy as np
import pytest

from edgedec.records.rounds import Drafts, SurvivalEstimate


def test_survival_is_counted_by_position():
    estimate = SurvivalEstimate("model", 3)
    for drafted, accepted in [(3, 3), (3, 1), (3, 0), (3, 1), (0, 0)]:
        estimate.observe(drafted, drafted, accepted)
    found = estimate.drafts
    assert found.share == pytest.approx(4 / 5)
    assert found.chances == pytest.approx((3 / 4, 1 / 4, 1 / 4))
    assert found.nodes == 3
    assert found.accepted(2) == pytest.approx(4 / 5 * (3 / 4 + 1 / 4))
    assert (found.whole(0), found.whole(2), found.whole(9)) == (1.0, pytest.approx(1 / 4), 0.0)


def naive(rounds: list[tuple[int, int]], most: int) -> list[float]:
    """The broken twin: a chain that ended whole counts as wrong where it ended."""
    return [sum(a > i for _, a in rounds) / len(rounds) for i in range(most)]


def test_a_chain_accepted_whole_says_nothing_of_the_next_position():
    rng = np.random.default_rng(0)
    chance, rounds = 0.8, []
    for _ in range(4000):
        run = int(rng.geometric(1 - chance)) - 1
        drafted = int(rng.integers(1, 7))
        rounds.append((drafted, min(run, drafted)))
    estimate = SurvivalEstimate("model", 6)
    for drafted, accepted in rounds:
        estimate.observe(drafted, drafted, accepted)
    truth = [chance**i for i in range(1, 7)]
    assert estimate.drafts.chances == pytest.approx(truth, abs=0.04)
    assert naive(rounds, 6) != pytest.approx(truth, abs=0.2), "the twin must be caught"


def test_nothing_is_promised_beyond_what_was_drafted():
    estimate = SurvivalEstimate("tree", 4)
    estimate.observe(5, 2, 2)
    assert estimate.drafts.chances == (1.0, 1.0, 0.0, 0.0)
    assert estimate.drafts.nodes == 5
    assert SurvivalEstimate("x", 2).drafts == Drafts("x", 0.0, (0.0, 0.0), 0.0)
