"""Where the planner puts models, and where they go when a place fails."""

from dataclasses import replace

import pytest
from profiles import (
    CPU,
    FIRST,
    GPU,
    PAIR,
    SECOND,
    WORK,
    draft,
    fastest,
    of,
    profile,
    ran,
    said,
    target,
)
from simulated import lookup

from edgedec._support.amounts import size
from edgedec.planning.choose import decide
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Plan
from edgedec.records.profile import Contention


def test_a_slow_draft_on_a_device_of_its_own_overlaps():
    apart = profile(target(), draft(CPU, 8e-3 / 3), draft(GPU, 8e-3 / 3), right=0.8)
    decision = decide(apart, WORK)
    assert decision.chosen.plan.schedule == OVERLAPPED
    assert fastest(decision, schedule=OVERLAPPED) > 1.1 * fastest(decision, schedule=SEQUENTIAL)
    assert decision.chosen.plan.draft == GPU
    found = (one for one in decision.candidates if one.plan.schedule == SEQUENTIAL)
    sequential = next(one for one in found if not one.plan.plain and not one.refused)
    told = said(decision, "Overlap is used", "the draft works while the target verifies")
    assert told.endswith(f" {sequential.plan.label}.")


def test_two_halves_of_a_processor_do_not_when_all_of_it_is_faster():
    halves = profile(
        target(CPU, 8e-3),
        target(FIRST, 15e-3, row_s=2e-3),
        draft(CPU, 1e-3),
        draft(SECOND, 1e-3),
        contention=[Contention(FIRST.label, SECOND.label, 1.1, 1.1)],
    )
    decision = decide(halves, WORK)
    assert decision.chosen.plan.schedule == SEQUENTIAL
    said(decision, "Overlap is not used. Its best plan", "the speed of the chosen plan")


def test_contention_counts():
    def best(factor: float) -> float:
        slowed = Contention(CPU.label, GPU.label, factor, factor)
        found = decide(profile(target(), draft(GPU, 2e-3), contention=[slowed]), WORK)
        return fastest(found, schedule=OVERLAPPED)

    assert best(2.2) < 0.7 * best(1.0)


def test_places_that_share_cores_cannot_overlap():
    decision = decide(PAIR, WORK)
    assert not of(decision, schedule=OVERLAPPED)


def test_the_fastest_place_is_taken():
    decision = decide(profile(target(), target(GPU, 1e-3), draft(), draft(GPU, 1e-4)), WORK)
    assert decision.chosen.plan.target == GPU


def test_fallbacks_leave_the_chosen_places_one_by_one_and_end_plainly():
    found = profile(
        target(CPU), target(GPU, 2e-3), target(FIRST, 12e-3), draft(GPU, 2e-4), draft(SECOND)
    )
    decision = decide(found, WORK)
    assert decision.chosen.plan.target == GPU
    assert decision.chosen.plan.draft == GPU
    *others, last = decision.fallbacks
    assert last == Plan(CPU)
    for plan in decision.fallbacks:
        assert GPU not in (plan.target, plan.draft), "the device itself may be gone"
    assert any(not plan.plain for plan in others)
    assert decision.chosen.plan not in decision.fallbacks


def test_a_draft_that_fails_leaves_the_target_where_it_is():
    decision = decide(profile(target(), draft(GPU, 1e-4), draft(SECOND)), WORK)
    assert decision.chosen.plan.draft == GPU
    first = decision.fallbacks[0]
    assert first.target == CPU
    assert first.draft == SECOND


def test_plain_on_the_processor_needs_no_fallback():
    decision = decide(profile(target(row_s=8e-3), draft(one_row_s=8e-3), right=0.1), WORK)
    assert decision.chosen.plan == Plan(CPU)
    assert decision.fallbacks == ()


def test_what_the_profile_left_out_is_said():
    notes = ("model: the vocabularies\nshare nothing.",)
    decision = decide(replace(PAIR, notes=notes), WORK)
    said(decision, "Left out: model: the vocabularies share nothing.")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(1, "0.1 MB"), (10**6, "1.0 MB"), (1_234_567, "1.3 MB"), (2_000_000_001, "2.01 GB")],
)
def test_a_size_that_is_named_is_enough(count, shown):
    assert size(count) == shown


def test_the_last_way_out_is_another_place_where_there_is_one():
    one, two = target(CPU, 8e-3), target(FIRST, 12e-3)
    often = [r if r.drafter != "lookup" else replace(r, drafts=(lookup(1.0),)) for r in PAIR.rounds]
    rounds = tuple(r for r in often if r.drafter in ("none", "lookup"))
    both = decide(profile(one, two, rounds=rounds), WORK)
    assert (both.chosen.plan.drafter, both.chosen.plan.target) == ("lookup", CPU)
    assert both.fallbacks[-1] == Plan(FIRST)
    alone = decide(profile(one, rounds=rounds), WORK)
    assert alone.chosen.plan.drafter == "lookup"
    assert alone.fallbacks[-1] == Plan(CPU), "where there is no other, plain decoding stays"


def test_overlap_that_ran_and_is_slower_is_told_as_such():
    def speed(plan: Plan) -> float:
        return 100.0 if plan.plain else 110.0 if plan.schedule == OVERLAPPED else 120.0

    decision = decide(profile(target(), draft(GPU)), WORK, run=ran(speed))
    said(decision, "Overlap is not used. Its best plan", "decoded 110 tokens/s, 0.92 times")
