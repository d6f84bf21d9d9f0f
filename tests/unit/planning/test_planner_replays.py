"""A closer look at plans: replays have the last word, and the figures say whose they are."""

from dataclasses import replace

import pytest

from edgedec.planning.choose import decide
from edgedec.planning.predict import predict
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Prediction
from edgedec.records.profile import Contention
from tests.profiles import (
    CPU,
    FIRST,
    GPU,
    PAIR,
    WORK,
    draft,
    of,
    profile,
    said,
    target,
)
from tests.simulated import trace


def test_texts_of_the_workloads_temperature_count():
    good = [trace(0.95, seed=seed) for seed in range(3)]
    bad = [trace(0.05, seed=seed, temperature=0.8) for seed in range(3, 6)]
    both = profile(target(row_s=3e-3), draft(), texts=[*good, *bad])
    assert not decide(both, WORK).chosen.plan.plain
    assert decide(both, replace(WORK, temperature=0.9)).chosen.plan.plain


def test_a_replay_has_the_last_word():
    """A formula that is wrong about trees is put right."""
    replayed = []

    def by_replay(profile, plan, workload):
        replayed.append(plan)
        speed = 500.0 if plan.drafter == "tree" else 100.0
        return Prediction(speed, 0.1, 1, 2.0)

    decision = decide(PAIR, WORK, None, by_replay)
    assert decision.chosen.plan.drafter == "tree"
    assert decision.chosen.prediction.tokens_per_second == 500.0
    assert decision.chosen.prediction.peak_bytes > 1, "bytes are those of the chosen context"
    assert len(replayed) == len(set(replayed))
    assert {plan.drafter for plan in replayed} == {
        "none", "lookup", "recycle", "model", "hybrid", "tree", "adaptive",
    }  # fmt: skip


def test_a_replay_that_finds_drafts_slow_refuses_them():
    def by_replay(profile, plan, workload):
        return Prediction(100.0 if plan.plain else 99.0, 0.1, 1, 1.0)

    decision = decide(PAIR, WORK, None, by_replay)
    assert decision.chosen.plan.plain
    said(decision, "Speculation is refused", "0.99 times")


def test_the_formula_is_near_the_replay_of_the_real_loop():
    decision = decide(PAIR, WORK)
    off = []
    for one in decision.candidates:
        if one.plan.draft_length is None:
            continue
        formula = one.prediction.tokens_per_second
        replayed = predict(PAIR, one.plan, WORK).tokens_per_second
        off.append(abs(formula / replayed - 1))
    off.sort()
    assert off[len(off) // 2] < 0.05
    assert off[-1] < 0.2


@pytest.mark.parametrize(("auto", "follows"), [(98.0, True), (97.1, True), (96.9, False)])
def test_a_text_that_changes_is_followed_rather_than_a_length_fixed(auto, follows):
    """Deciding each round may cost 3% of the best fixed length's speed, and no more."""

    def by_replay(profile, plan, workload):
        rates = {"none": 50.0, "model": auto if plan.draft_length is None else 100.0}
        return Prediction(rates.get(plan.drafter, 60.0), 0.1, 1, 1.0)

    chosen = decide(PAIR, WORK, None, by_replay).chosen
    assert chosen.plan.drafter == "model"
    assert (chosen.plan.draft_length is None) == follows
    assert chosen.prediction.tokens_per_second == (auto if follows else 100.0)


def test_what_was_replayed_comes_first_and_says_so():
    replayed = {}

    def by_replay(profile, plan, workload):
        replayed[plan] = 10.0 if plan.plain else 1.0 + len(replayed)
        return Prediction(replayed[plan], 0.1, 1, 1.0)

    places = profile(
        target(),
        target(FIRST),
        draft(),
        draft(GPU),
        contention=[Contention(one.label, GPU.label, 1.0, 1.0) for one in (CPU, FIRST)],
    )
    decision = decide(places, WORK, None, by_replay)
    usable = [one for one in decision.candidates if not one.refused]
    assert {one.plan for one in usable if one.replayed} == set(replayed)
    marks = [one.replayed for one in usable]
    assert marks == sorted(marks, reverse=True)
    assert not all(marks), "some are left to the formula"
    for mark in (True, False):
        rates = [one.prediction.tokens_per_second for one in usable if one.replayed == mark]
        assert rates == sorted(rates, reverse=True)
    assert not any(one.replayed for one in decide(PAIR, WORK).candidates)


def test_the_best_overlapped_plan_of_each_drafter_is_replayed_and_spoken_of():
    """The table and the reasons go by the same figures, however fast a formula finds others."""
    apart = profile(
        target(), draft(GPU, 4e-3), contention=[Contention(CPU.label, GPU.label, 1.0, 1.0)]
    )
    by_formula = decide(apart, WORK)
    decision = decide(apart, WORK, None, predict)
    for drafter in ("model", "hybrid"):
        first = of(by_formula, drafter=drafter, schedule=OVERLAPPED)[0]
        assert any(
            one.replayed and one.plan == first.plan
            for one in of(decision, drafter=drafter, schedule=OVERLAPPED)
        )


_DECODES = "is predicted to decode 80 tokens/s, 0.80 times the chosen plan."


@pytest.mark.parametrize(
    ("overlapped", "says"),
    [
        (200.0, "Overlap is used: the draft works while the target verifies, 2.00 times {other}."),
        (80.0, f"Overlap is not used: its best plan, {{best}}, {_DECODES}"),
    ],
)
def test_the_best_overlapped_plan_is_spoken_of_with_its_own_figures(overlapped, says):
    apart = profile(
        target(), draft(GPU, 4e-3), contention=[Contention(CPU.label, GPU.label, 1.0, 1.0)]
    )

    def by_replay(profile, plan, workload):
        rate = 50.0
        if plan.drafter == "model" and plan.draft_length is None:
            rate = overlapped if plan.schedule == OVERLAPPED else 100.0
        return Prediction(rate, 0.1, 1, 2.0)

    decision = decide(apart, WORK, None, by_replay)
    best, other = (
        next(
            one.plan.label
            for one in of(decision, drafter="model", draft_length=None, schedule=schedule)
            if one.replayed
        )
        for schedule in (OVERLAPPED, SEQUENTIAL)
    )
    assert decision.chosen.plan.label == (best if overlapped > 100 else other)
    assert said(decision, "Overlap is") == says.format(best=best, other=other)


def test_why_overlap_is_used_where_a_fixed_length_is_ahead():
    apart = profile(
        target(), draft(GPU, 4e-3), contention=[Contention(CPU.label, GPU.label, 1.0, 1.0)]
    )

    def by_replay(profile, plan, workload):
        fixed = plan.draft_length is not None
        rates = {(OVERLAPPED, False): 98.0, (SEQUENTIAL, True): 100.0}
        rate = rates.get((plan.schedule, fixed), 60.0) if plan.drafter == "model" else 50.0
        return Prediction(rate, 0.1, 1, 2.0)

    told = said(decide(apart, WORK, None, by_replay), "Overlap is used")
    assert ", 0.98 times model " in told
    assert told.endswith(
        ", which is ahead by too little to give up choosing the length every round."
    )


def test_a_round_is_told_by_the_figures_of_its_rate():
    """A replay with another speed than the formula's has rounds of another length."""

    def by_replay(profile, plan, workload):
        return Prediction(100.0 if plan.plain else 50.0, 0.1, 1, 1.0 if plan.plain else 3.0)

    decision = decide(PAIR, WORK, None, by_replay)
    said(decision, "A round of it takes 6.00 times as long as a plain one and gives 3.00 tokens")
