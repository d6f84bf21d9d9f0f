"""The measured-cost policy against the best that could be had, in worlds without clocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from kinds import each_once, in_full
from policy_world import CURVE, Process, World, mixed, same

from edgedec.decoding.drafting.base import DraftLimits, DraftStep, Offer
from edgedec.decoding.policy import CostCurve, DraftPolicy, Fixed, MeasuredCost, RoundRecord
from edgedec.decoding.policy.cost import LiveCost, Stake
from edgedec.decoding.policy.drafter_estimate import _MARGIN, DrafterEstimate
from edgedec.decoding.policy.measured import _Round

DRAFTS = [0.1e-3, 0.8e-3, 2.5e-3]
# llama.cpp's Q4_0: three rows cost more than four.
DIPS = CostCurve((1, 2, 3, 4, 5, 6), (15.9e-3, 29.6e-3, 41e-3, 32e-3, 50e-3, 60e-3))
SEEDS = range(3)


def best_fixed(
    process: Process, draft_s: float, tokens: int = 1500, curve: CostCurve = CURVE
) -> float:
    """Tokens a second at the length that turns out best, on the texts of ``SEEDS``."""
    lengths = (0, 1, 2, 3, 4, 5, 6, 8, 11, 13, 16)

    def speed_of(length: int, seed: int) -> float:
        decoded, rounds = with_length(process, length, tokens, seed)
        return decoded / (rounds * (curve.at(length + 1) + length * draft_s))

    return max(mean(speed_of(length, seed) for seed in SEEDS) for length in lengths)


@functools.cache
def with_length(process: Process, length: int, tokens: int, seed: int) -> tuple[int, int]:
    """Tokens and rounds with a fixed length, which do not depend on what anything costs."""
    world = World(process, seed=seed)
    world.run(Fixed(length), tokens)
    return world.tokens, world.rounds


def test_a_fixed_length_takes_the_same_time_in_every_round() -> None:
    """As ``best_fixed`` has it."""
    for length in (0, 3):
        world = World(same(0.7), 2.5e-3, DIPS, seed=1)
        decoded, rounds = with_length(same(0.7), length, 200, 1)
        expected = decoded / (rounds * (DIPS.at(length + 1) + length * 2.5e-3))
        assert world.run(Fixed(length), 200) == pytest.approx(expected)


def speed(process: Process, draft_s: float, tokens: int = 1500, curve: CostCurve = CURVE) -> float:
    """Tokens a second of the policy on the same texts, learning included."""
    runs = (World(process, draft_s, curve, seed=seed) for seed in SEEDS)
    return mean(world.run(MeasuredCost(curve, draft_s), tokens) for world in runs)


@pytest.mark.parametrize(("chance", "draft_s"), each_once([0.5, 0.85, 0.99, 0.7, 0.95], DRAFTS, 3))
def test_predictable_text_comes_near_the_best_length(chance: float, draft_s: float) -> None:
    process = same(chance)
    assert speed(process, draft_s) > 0.95 * best_fixed(process, draft_s)


@pytest.mark.parametrize("draft_s", in_full(DRAFTS[:2]))
def test_confidence_beats_every_fixed_length_where_it_tells(draft_s: float) -> None:
    for process, gain in ((mixed(0.5, 0.5), 1.03), (mixed(2, 2), 1.0)):
        assert speed(process, draft_s) > gain * best_fixed(process, draft_s)


@pytest.mark.parametrize("draft_s", DRAFTS)
@pytest.mark.parametrize(
    ("process", "kept"),
    [
        (same(0.02), 0.98),
        (mixed(1, 1, honesty=0.02), 0.98),
        # Confident and wrong 24 times in 25. With the cheapest draft, which pays from one
        # token in 16, that takes longest to tell.
        (mixed(5, 2, honesty=0.05), 0.97),
    ],
)
def test_hard_text_loses_little(process: Process, kept: float, draft_s: float) -> None:
    for seed in range(6):
        world = World(process, draft_s, seed=seed)
        assert world.run(MeasuredCost(CURVE, draft_s), 256) > kept * world.plain


def test_in_the_long_run_hard_text_loses_next_to_nothing() -> None:
    world = World(same(0.02), 2.5e-3)
    assert world.run(MeasuredCost(CURVE, 2.5e-3), 4000) > 0.995 * world.plain
    assert world.drafted > 0


@pytest.mark.parametrize("draft_s", DRAFTS)
def test_it_recovers_when_the_text_becomes_predictable(draft_s: float) -> None:
    def process(rng: np.random.Generator, tokens: int) -> tuple[float, float]:
        return (0.95, 0.02 if tokens < 400 else 0.95)

    world, policy = World(process, draft_s), MeasuredCost(CURVE, draft_s)
    world.run(policy, 400)
    world.run(policy, 300)  # to notice
    assert world.run(policy, 600) > 0.9 * best_fixed(same(0.95), draft_s)


def test_it_gives_up_when_the_text_becomes_hard() -> None:
    def process(rng: np.random.Generator, tokens: int) -> tuple[float, float]:
        return (0.95, 0.95 if tokens < 400 else 0.02)

    world, policy = World(process, 2.5e-3), MeasuredCost(CURVE, 2.5e-3)
    world.run(policy, 400)
    assert world.run(policy, 256) > 0.93 * world.plain
    assert world.run(policy, 256) > 0.98 * world.plain


def lengths(world: World, policy: DraftPolicy, rounds: int) -> list[int]:
    drafted = []
    for _ in range(rounds):
        before = world.drafted
        world.round(policy)
        drafted.append(world.drafted - before)
    return drafted


def test_a_curve_that_dips_is_used_as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two drafted tokens (3 rows) take longer than three (4 rows). Where rows cost so much, a text
    # may lose its stake by chance.
    monkeypatch.setattr(Stake, "affords", lambda self, drafted, spent: True)
    for chance in (0.85, 0.9):
        world, policy = World(same(chance), 0.8e-3, DIPS), MeasuredCost(DIPS, 0.8e-3)
        lengths(world, policy, 150)
        assert lengths(world, policy, 100).count(3) > 80
    assert speed(same(0.9), 0.8e-3, 1500, DIPS) > 0.95 * best_fixed(same(0.9), 0.8e-3, 1500, DIPS)


def test_pairs_of_rows_at_one_price_are_bought_in_pairs() -> None:
    # Passes padded to an even number of rows: an even draft length wastes a row.
    padded = CostCurve(
        tuple(range(1, 9)), tuple(1e-3 * (6 + 2 * ((n + 1) // 2)) for n in range(1, 9))
    )
    world, policy = World(same(0.6), 1e-6, padded), MeasuredCost(padded, 1e-6, most=7)
    lengths(world, policy, 200)
    drafted = lengths(world, policy, 100)
    assert sum(n % 2 for n in drafted) > 95


def test_drafts_are_longer_where_each_pass_waits() -> None:
    """As for an answer of other machines. The control waits as much in every row."""

    def drafted(waits: CostCurve) -> float:
        world = World(same(0.8), curve=waits)
        world.run(MeasuredCost(waits, world.draft_s), 400)
        return world.drafted / world.rounds

    behind = CostCurve(CURVE.widths, tuple(seconds + 20e-3 for seconds in CURVE.seconds))
    slower = CostCurve(CURVE.widths, tuple(3.4 * seconds for seconds in CURVE.seconds))
    assert drafted(behind) > 1.5 * drafted(CURVE)
    assert drafted(slower) < 1.5 * drafted(CURVE)


def test_a_wrong_calibration_is_mended() -> None:
    # Calibrated while a wide pass seemed free; in truth it is not.
    flat = CostCurve((1, 2, 17), (8.3e-3, 8.4e-3, 8.6e-3))
    world, policy = World(same(0.5), 0.8e-3), MeasuredCost(flat, 0.8e-3)
    world.run(policy, 300)
    assert world.run(policy, 1000) > 0.91 * best_fixed(same(0.5), 0.8e-3)


def test_a_slower_machine_changes_nothing_but_the_clock() -> None:
    world, policy = World(same(0.9)), MeasuredCost(CURVE, 0.8e-3)
    world.run(policy, 500)
    before = world.run(policy, 1000)
    world.slower, world.draft_s = 3.0, 3 * world.draft_s
    world.run(policy, 200)
    assert 3 * world.run(policy, 1000) > 0.93 * before


def hybrid(lookup: Process, model: Process, seed: int = 0) -> World:
    behind = World(model, 0.8e-3, seed=seed + 100)
    return World(lookup, 2e-6, source="lookup", fallback=behind, seed=seed)


def test_a_free_drafter_that_is_never_right_is_passed_over() -> None:
    world = hybrid(mixed(5, 2, honesty=0.02), same(0.85))
    world.run(MeasuredCost(CURVE, 0.8e-3), 300)
    alone = speed(same(0.85), 0.8e-3, 1000)
    assert world.run(policy := MeasuredCost(CURVE, 0.8e-3), 1000) > 0.93 * alone
    assert set(policy._drafters) == {"lookup", "model"}


def test_the_better_drafter_is_asked() -> None:
    # Lookup is right 4 times in 10 and free, the model 19 in 20: the model it is.
    for seed in SEEDS:
        world, policy = hybrid(same(0.4), same(0.95), seed), MeasuredCost(CURVE, 0.8e-3)
        world.run(policy, 300)
        assert world.run(policy, 1000) > 0.9 * best_fixed(same(0.95), 0.8e-3)
    # And the other way round.
    world, policy = hybrid(same(0.95), same(0.4)), MeasuredCost(CURVE, 0.8e-3)
    world.run(policy, 300)
    assert world.run(policy, 1000) > 0.95 * best_fixed(same(0.95), 2e-6)


def test_what_was_not_drafted_is_learned_from_all_the_same() -> None:
    # Lookup is bad and passed over; then it is always right, which the text tells at once.
    def lookup(rng: np.random.Generator, tokens: int) -> tuple[float, float]:
        return (0.7, 0.05 if tokens < 600 else 1.0)

    best = best_fixed(same(1.0), 2e-6, 400)
    world, policy = hybrid(lookup, same(0.8)), MeasuredCost(CURVE, 0.8e-3)
    world.run(policy, 600)
    world.run(policy, 100)
    assert world.run(policy, 400) > 0.95 * best


def test_no_draft_at_all_is_asked_of_a_model_that_costs_more_than_it_gives() -> None:
    # Right 8 times in 10, but a draft pass takes as long as the target's.
    world = World(same(0.8), 8.3e-3)
    assert world.run(MeasuredCost(CURVE, 8.3e-3), 512) > 0.97 * world.plain


def branching_step(nodes: int, value: float) -> DraftStep:
    return DraftStep(Offer("recycle", lambda: 0.5), nodes, value=2 * value)


def test_nodes_of_a_tree_are_bought_while_they_pay() -> None:
    policy = MeasuredCost(CURVE)
    rng = np.random.default_rng(0)
    values = [0.5 * 0.75**n for n in range(16)]
    sizes = []
    for _ in range(400):
        most, size = policy.limits().nodes, 0
        while size < most and policy.go_on(branching_step(size, values[size])):
            size += 1
        path = [0, *(n for n in range(1, size + 1) if rng.random() < values[n - 1])]
        seconds = CURVE.at(size + 1)
        record = RoundRecord(
            size, size, len(path) - 1, len(path), size + 1, 0, seconds, seconds, "recycle", path
        )
        policy.observe(record)
        sizes.append(size)
    rates = [(1 + sum(values[:n])) / CURVE.at(n + 1) for n in range(17)]
    assert rates[round(mean(sizes[-200:]))] > 0.95 * max(rates)


def test_a_round_that_was_broken_off_teaches_nothing() -> None:
    world, policy = World(same(0.9)), MeasuredCost(CURVE, 0.8e-3)
    world.run(policy, 100)
    chances = [bin_.chance for bin_ in policy._drafters["model"].bins]
    policy.limits()
    policy.go_on(DraftStep(Offer("model", lambda: 0.9)))  # and then an exception
    policy.limits()
    policy.observe(RoundRecord(0, 0, 0, 1, 1, 0.0, 8e-3, 8e-3, "model", (0,)))
    assert [bin_.chance for bin_ in policy._drafters["model"].bins] == chances


# -- the thresholds themselves ----------------------------------------------------------------


@pytest.mark.parametrize("curve", [CURVE, DIPS], ids=["usual", "dips"])
@pytest.mark.parametrize("chance", [0.3, 0.6, 0.9])
def test_the_plan_is_the_best_stopping_rule(curve: CostCurve, chance: float) -> None:
    # With one confidence there is nothing to learn on the way, so the best rule is a length,
    # found here by trying them all.
    source = DrafterEstimate("model", 0.4e-3, branching=False)
    for index, bin_ in enumerate(source.bins):
        bin_.chance, bin_.met = chance, float(index == 4)
    price = 1.3 / curve.at(1)
    seconds = [curve.at(rows) for rows in range(1, 18)]
    source.plan(LiveCost(curve, 16), price)
    reach, length = 1.0, 0
    while length < 16 and source.worth_a_peek(length, reach):
        reach *= chance
        length += 1
    steps = [price * (b - a) for a, b in pairwise(seconds)]
    steps[0] += _MARGIN
    look = price * 0.4e-3

    def value(length: int) -> float:
        # Looks are paid whatever comes of them: the draft's own tokens are all drawn.
        return sum(chance**n - steps[n - 1] - look for n in range(1, length + 1))

    assert value(length) >= max(value(n) for n in range(17)) - 0.02
    best = max(0.0, *map(value, range(1, 17)))
    assert source.gain == pytest.approx(best, rel=0.05, abs=0.1)


@pytest.mark.parametrize("told", [0.08e-3, 2e-3])
def test_what_a_look_costs_is_learned_whatever_was_said_at_first(told: float) -> None:
    world, policy = World(same(0.9), 0.8e-3), MeasuredCost(CURVE, told)
    lengths(world, policy, 100)
    (source,) = policy._drafters.values()
    assert source.peek_s.value == pytest.approx(0.8e-3)


def _accepted_one(source: str, drafted: int, draft_s: float) -> RoundRecord:
    """A round of drafts side by side, of which the first was accepted."""
    rows = drafted + 1
    return RoundRecord(
        drafted, depth=1, accepted=1, emitted=2, rows=rows, draft_s=draft_s,
        target_s=CURVE.at(rows), total_s=CURVE.at(rows) + draft_s, source=source, path=(0, 1),
        tokens=(1, 1),
    )  # fmt: skip


def test_a_layer_of_a_tree_is_looked_at_once() -> None:
    look_s, policy = 0.8e-3, MeasuredCost(CURVE, 0.5e-3)
    policy.begin(1000)
    for _ in range(30):
        policy.limits()
        offer = Offer("tree", lambda: 0.95, costly=True)
        for nodes, value in enumerate((0.95, 0.9)):
            assert policy.go_on(DraftStep(offer, nodes, value=value))
        policy.observe(_accepted_one("tree", 2, look_s))
    (source,) = policy._drafters.values()
    assert source.peek_s.value == pytest.approx(look_s)


def test_what_reading_costs_is_learned_from_the_rounds() -> None:
    token_s, look_s = 2e-5, 0.8e-3
    policy = MeasuredCost(CURVE, look_s)
    policy.begin(1000)
    assert policy._catch_up._token_s.value > 2 * token_s
    for _ in range(3):
        policy.limits()
        offer = Offer("model", lambda: 0.9, costly=True)
        assert policy.go_on(DraftStep(offer, behind=40, reads=40))
        assert policy.go_on(DraftStep(offer))
        policy.observe(_accepted_one("model", 1, 40 * token_s + look_s))
    assert policy._catch_up._token_s.value == pytest.approx(token_s, rel=0.01)


def test_limits_are_what_was_asked() -> None:
    assert MeasuredCost(CURVE, most=5).limits() == DraftLimits(5, 5)
    policy = MeasuredCost(CURVE, most=5)
    world = World(same(1.0), 1e-6)
    assert max(lengths(world, policy, 50)) == 5


# -- twins that must fail ---------------------------------------------------------------------


def test_a_policy_that_believes_the_draft_fails_on_hard_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DrafterEstimate, "_estimate", lambda self, bin_: None)
    monkeypatch.setattr(Stake, "affords", lambda self, drafted, spent: True)
    with pytest.raises(AssertionError):
        test_hard_text_loses_little(mixed(5, 2, honesty=0.05), 0.97, 0.8e-3)


_plan = DrafterEstimate.plan


def _free(self: DrafterEstimate, costs: LiveCost, price: float) -> None:
    """Passes of any width cost what one row does."""
    _plan(self, LiveCost(CostCurve((1,), (costs.at(1),)), 16), price)


@pytest.mark.parametrize(
    ("where", "name", "twin", "test"),
    [
        (MeasuredCost, "_probes", lambda self, drafter, drafted: False,
         lambda: test_it_recovers_when_the_text_becomes_predictable(2.5e-3)),
        (_Round, "decline", lambda self, *of: None,
         lambda: test_what_was_not_drafted_is_learned_from_all_the_same()),
        (DrafterEstimate, "plan", _free,
         lambda: test_predictable_text_comes_near_the_best_length(0.7, 0.8e-3)),
    ],
    ids=["never tries again", "learns from its own drafts only", "takes passes for free"],
)  # fmt: skip
def test_a_broken_policy_is_noticed(
    where: type, name: str, twin: object, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, twin)
    with pytest.raises(AssertionError):
        test()
