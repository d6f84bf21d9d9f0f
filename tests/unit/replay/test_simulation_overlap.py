"""Overlapped plans in virtual time: the real scheduler and its thread, held against sums."""

from dataclasses import replace

import pytest
from running_threads import threads
from simulated import OTHER, PLACE, measured, trace

from edgedec.errors import InputError
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import Contention
from edgedec.replay.run import ReplaySetting, replay
from edgedec.replay.virtual_clock import VirtualClock

# A pass of the target over 4 rows takes 11 ms, of the draft 2.
SETTING = ReplaySetting(measured(), measured("draft", 2e-3, row_s=0.0, place=OTHER))
NOISE = Contention(PLACE.label, OTHER.label, 2.0, 1.5)


def plan(length: int | None = 3, drafter: str = "model", schedule: str = OVERLAPPED) -> Plan:
    return Plan(PLACE, OTHER, drafter, length, schedule=schedule)


def tpot_s(setting: ReplaySetting, chance: float = 1.0, length: int | None = 3) -> float:
    (found,) = replay(setting, plan(length), [trace(chance, prompt=30, count=60)], 60)
    return found.tpot_s


def test_a_draft_that_is_right_costs_nothing_beside_the_target():
    # Every round a target pass over 4 rows, under contexts of less than 100 tokens.
    assert tpot_s(SETTING) == pytest.approx(11e-3 / 4)


def test_a_draft_that_is_slower_than_the_target_sets_the_pace():
    slow = replace(SETTING, draft=measured("draft", 10e-3, row_s=0.0, place=OTHER))
    sequential = replay(slow, plan(schedule="sequential"), [trace(1.0, prompt=30, count=61)], 61)[0]
    # No more than a token for a draft's pass and one of the target's own.
    assert 9e-3 * 0.5 < tpot_s(slow) < sequential.tpot_s


def test_what_shares_a_memory_is_slower():
    # The draft rests once it has thought of all it may think of, so in part only.
    alone, beside = tpot_s(SETTING), tpot_s(replace(SETTING, contention=NOISE))
    assert 1.3 * alone < beside < 2 * alone


def test_a_sequential_plan_is_not_slowed_by_contention():
    texts = [trace(0.7)]
    quiet, noisy = (
        replay(replace(SETTING, contention=noise), plan(schedule="sequential"), texts, 60)
        for noise in (None, NOISE)
    )
    assert quiet == noisy


@pytest.mark.parametrize("drafter", ["model", "hybrid"])
@pytest.mark.parametrize("length", [1, 4, None])
def test_the_same_figures_every_time_and_no_thread_is_left(drafter, length):
    before = threads()
    setting = replace(SETTING, contention=NOISE, overhead_s=1e-4, draft_overhead_s=3e-5)
    texts = [trace(0.7, seed=seed, count=24) for seed in range(2)]
    runs = [replay(setting, plan(length, drafter), texts, 24) for _ in range(20)]
    assert all(run == runs[0] for run in runs)
    assert [run.emitted for run in runs[0]] == [24, 24]
    assert threads() <= before


def test_costs_that_are_doubled_double_the_time():
    twice = ReplaySetting(
        measured(one_row_s=16e-3, row_s=2e-3), measured("draft", 4e-3, row_s=0.0, place=OTHER)
    )
    for chance in (0.5, 1.0):
        assert tpot_s(twice, chance) == pytest.approx(2 * tpot_s(SETTING, chance), rel=1e-6)


def test_overlap_pays_with_a_second_device_and_not_where_it_halves_the_first():
    texts = [trace(0.8, seed=seed, count=96) for seed in range(3)]

    def speed(setting: ReplaySetting, schedule: str) -> float:
        found = replay(setting, plan(3, schedule=schedule), texts, 96)
        return 1 / sum(text.tpot_s for text in found)

    third = replace(SETTING, draft=measured("draft", 8e-3 / 3, row_s=1e-4, place=OTHER))
    assert speed(third, OVERLAPPED) > 1.2 * speed(third, "sequential")
    halved = replace(third, contention=Contention("", "", 2.0, 2.0))
    assert speed(halved, OVERLAPPED) < speed(halved, "sequential")


@pytest.mark.parametrize("drafter", ["lookup", "tree", "none"])
def test_drafters_that_cannot_think_ahead_are_refused(drafter):
    with pytest.raises(InputError, match="expected model or hybrid"):
        replay(SETTING, plan(2, drafter), [trace()], 20)


def test_a_clock_that_lets_nobody_run_beside_a_pass_is_noticed(monkeypatch):
    def alone(clock: VirtualClock, moment: float) -> bool:
        clock._now = max(clock._now, moment)
        return True

    monkeypatch.setattr(VirtualClock, "passes_undisturbed", alone)
    assert tpot_s(SETTING) > 1.5 * 11e-3 / 4
