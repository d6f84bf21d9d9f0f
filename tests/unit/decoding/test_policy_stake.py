"""Short texts under the prices of real models: what drafts that are not accepted may cost."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
from policy_world import CURVE, Process, World, mixed

from edgedec.decoding.policy import CostCurve, MeasuredCost, RoundRecord
from edgedec.decoding.policy.cost import Stake
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate

TEXT, SEEDS = 64, range(12)


def _curve(one_s: float, ratios: dict[int, float]) -> CostCurve:
    return CostCurve(tuple(ratios), tuple(one_s * ratio for ratio in ratios.values()))


# A 135M model: GGUF in Q4_1, where a further row costs nearly a token, and ONNX in int8 behind 32
# tokens and, with attention padded to two rows, behind 700.
PRICES = {
    "gguf": _curve(6e-3, {1: 1, 2: 1.9, 3: 2.6, 4: 3.2, 8: 5.0, 17: 9.0}),
    "onnx": _curve(5e-3, {1: 1, 2: 1.24, 3: 1.32, 4: 1.62, 6: 1.9, 8: 2.2, 17: 3.8}),
    "onnx, long": _curve(7e-3, {1: 1, 2: 1.13, 3: 1.2, 4: 1.42, 6: 1.65, 8: 1.88, 17: 3.3}),
    "half a billion": CURVE,
}


def copied(alone: float, inside: float) -> Process:
    """Copies of two tokens that begin a longer one with a chance; then each token follows."""
    matched = 0

    def process(rng: np.random.Generator, tokens: int) -> tuple[float, float]:
        nonlocal matched
        if tokens == 0:
            matched = 0
        matched = matched + 1 if rng.random() < (inside if matched > 2 else alone) else 2
        confidence = matched / (matched + 0.75)
        return confidence, inside if matched > 3 else alone

    return process


def rates(process: Process, curve: CostCurve, seed: int, tokens: int = TEXT) -> float:
    """Speed of a text relative to plain decoding, by a policy that knows the costs alone."""
    world = World(process, 1e-6, curve, source="lookup", seed=seed)
    policy = MeasuredCost(curve)
    policy.begin(tokens)
    return world.run(policy, tokens) / world.plain


@pytest.mark.parametrize("price", PRICES)
def test_a_short_text_that_accepts_nothing_loses_at_most_two_percent(price: str) -> None:
    for process in (mixed(5, 2, honesty=0.0), copied(0.0, 0.0), lambda rng, tokens: (0.95, 0.0)):
        assert min(rates(process, PRICES[price], seed) for seed in SEEDS) >= 0.98


@pytest.mark.parametrize(
    ("price", "alone", "inside", "gain"),
    [
        *((price, alone, 0.7, 0.985) for price in PRICES for alone in (0.1, 0.25, 0.4)),
        *zip(PRICES, [0.7] * 4, [0.96] * 4, (1.05, 2.6, 2.9, 2.9), strict=True),
    ],
)
def test_text_that_copies_little_is_hardly_slower_and_one_that_copies_much_gains(
    price: str, alone: float, inside: float, gain: float
) -> None:
    found = [rates(copied(alone, inside), PRICES[price], seed) for seed in SEEDS]
    assert mean(found) >= gain
    assert min(found) >= 0.95


def test_what_is_not_afforded_is_drafted_once_it_shows_that_it_pays() -> None:
    dear = _curve(6e-3, {1: 1, 2: 2.3, 3: 2.35, 4: 2.4, 8: 2.8, 17: 4.0})
    world = World(copied(0.95, 0.99), 1e-6, dear, source="lookup")
    policy = MeasuredCost(dear)
    policy.begin(TEXT)
    world.round(policy)
    assert not world.drafted
    assert world.run(policy, 2 * TEXT) > 1.5 * world.plain


# -- the account itself -----------------------------------------------------------------------


def _round(drafted: int, tokens: list[int]) -> RoundRecord:
    return RoundRecord(drafted, drafted, 0, len(tokens), drafted + 1, 0.0, 1.0, 1.0, "lookup",
                       tokens=tokens)  # fmt: skip


def test_a_draft_is_afforded_where_the_text_can_pay_for_it() -> None:
    stake = Stake()
    stake.prices([0.3, 0.1, 0.5])
    assert [stake.affords(drafted, 0.0) for drafted in range(3)] == [True, True, False]
    # What its peeks have cost counts as well.
    assert stake.affords(0, 0.4)
    assert not stake.affords(0, 0.5)
    stake.settle(_round(2, [1]), -0.5)
    assert not stake.affords(0, 0.0)
    stake.settle(_round(2, [1, 1, 1]), 1.6)
    assert stake.affords(2, 0.0)
    stake.begin()
    assert stake.affords(2, 0.0)  # what the last text had left, up to as much again
    stake.settle(_round(2, [1]), -3.0)
    stake.begin()
    assert stake.affords(1, 0.0)
    assert not stake.affords(2, 0.0)


def test_a_length_that_costs_less_than_a_shorter_one_is_not_kept_from_it() -> None:
    stake = Stake()
    stake.prices([0.9, -0.5])
    assert stake.affords(0, 0.0)
    assert stake.affords(1, 0.0)


@pytest.mark.parametrize(
    ("prices", "expected", "some", "many", "drafted"),
    [
        # Tokens that were not drafted count half.
        ([0.9, 0.3], 0.0, 4 * [7], 2 * [8], 0),
        # A draft that was not made counts what was expected of it.
        ([0.9, 0.1, 0.1, 6.9], 1.5, [7], 99 * [7], 2),
    ],
)
def test_what_was_not_drafted_counts(
    prices: list[float], expected: float, some: list[int], many: list[int], drafted: int
) -> None:
    stake = Stake()
    stake.prices(prices)
    for token in some:
        stake.passed(7, expected)
        stake.settle(_round(0, [token]), 0.0)
    assert stake.affords(drafted, 0.0)
    for token in many:
        stake.passed(7, expected)
        stake.settle(_round(0, [token]), 0.0)
    assert not stake.affords(drafted + bool(drafted), 0.0)


# -- twins that must fail ---------------------------------------------------------------------


def test_without_a_stake_short_texts_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stake, "affords", lambda self, drafted, spent: True)
    with pytest.raises(AssertionError):
        test_a_short_text_that_accepts_nothing_loses_at_most_two_percent("onnx")


def test_without_what_was_not_drafted_predictable_text_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stake, "passed", lambda self, token, gain: None)
    with pytest.raises(AssertionError):
        test_what_is_not_afforded_is_drafted_once_it_shows_that_it_pays()


def test_copies_are_not_believed_as_much_as_models() -> None:
    copies, model = (
        DrafterEstimate("lookup", 0.0, branching=False, copies=copies) for copies in (True, False)
    )
    for confidence in (0.3, 0.6, 0.73, 0.85):
        assert copies.bin(confidence).chance < model.bin(confidence).chance


def modelled(share: float, honesty: float, seed: int, texts: int = 4) -> list[float]:
    """Speeds of texts whose draft model's pass takes this share of a dear target's."""
    dear = _curve(44e-3, {1: 1, 2: 1.35, 3: 1.6, 4: 1.7, 8: 2.8, 17: 5.0})
    copies = World(mixed(1, 5), 2e-6, dear, source="lookup", seed=seed + 100)
    draft_s = share * dear.at(1)
    world = World(mixed(6, 1, honesty), draft_s, dear, seed=seed, fallback=copies)
    policy, found = MeasuredCost(dear, draft_s), []
    for _ in range(texts):
        policy.begin(128)
        found.append(world.run(policy, 112) / world.plain)
    return found


@pytest.mark.parametrize("share", [0.1, 0.2, 0.35])
def test_a_draft_model_that_may_not_draft_is_not_asked(share: float) -> None:
    """Peeks cost nothing but time where a draft cannot be afforded: one text was at 0.83."""
    assert min(min(modelled(share, 0.7, seed)) for seed in range(6)) >= 0.95


def test_a_draft_model_that_keeps_its_promises_gains() -> None:
    assert mean(modelled(0.1, 1.0, 0)) >= 1.4
