"""What the planner chooses, what it refuses, and whether it says why."""

from dataclasses import replace

import pytest
from profiles import (
    CPU,
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
    times,
)

from edgedec.errors import PlanError
from edgedec.memory.grant import with_spare
from edgedec.planning.choose import Run, decide
from edgedec.planning.contenders import Trials
from edgedec.planning.estimate import Forecast
from edgedec.planning.memory_fit import footprint
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import Parity

LLAMACPP = {1: 8.0, 2: 14.0, 3: 19.8, 4: 14.3, 5: 20.6, 6: 26.2, 7: 26.0, 8: 25.6, 16: 38.0}


def test_it_drafts_where_that_pays_and_says_how_much():
    decision = decide(PAIR, WORK)
    assert not decision.chosen.plan.plain
    gain = decision.chosen.prediction.tokens_per_second / fastest(decision, drafter="none")
    assert gain > 1.3
    said(decision, decision.chosen.plan.label, "is predicted", f"{gain:.2f} times")
    said(decision, "A round gives", "tokens.")
    assert decision.max_context == 4096


def test_candidates_are_listed_best_first_and_the_chosen_is_among_them():
    decision = decide(PAIR, WORK)
    rates = [one.prediction.tokens_per_second for one in decision.candidates if not one.refused]
    assert rates == sorted(rates, reverse=True)
    assert decision.chosen in decision.candidates
    assert {one.plan.drafter for one in decision.candidates} == {
        "none", "lookup", "recycle", "model", "hybrid", "tree", "adaptive",
    }  # fmt: skip


def test_a_draft_that_is_never_right_is_refused():
    decision = decide(profile(target(row_s=3e-3), draft(), right=0.05), WORK)
    assert decision.chosen.plan == Plan(CPU)
    said(decision, "Speculation is refused", "times plain decoding's")


def test_a_constant_cost_would_choose_drafts_that_lose():
    """The broken twin: a pass over many rows is thought to cost what one row does."""
    steep = {width: 8.0 * width**0.8 for width in (1, 2, 4, 8, 16, 32)}
    constant = dict.fromkeys(steep, 8.0)
    truth, believed = (
        profile(target(times=times(curve)), draft(), right=0.6) for curve in (steep, constant)
    )
    twin = decide(believed, WORK).chosen.plan
    assert not twin.plain
    forecast = Forecast(truth, WORK)
    assert forecast.estimate(twin).rate < 0.9 * forecast.estimate(Plan(CPU)).rate
    assert decide(truth, WORK).chosen.plan.plain


def test_deciding_reads_no_clock_no_file_and_draws_nothing(monkeypatch):
    before = decide(PAIR, WORK)

    def impure(*args: object, **more: object) -> None:
        raise AssertionError("not pure")

    for name in (
        "numpy.random.default_rng", "builtins.open", "time.time", "time.perf_counter",
        "time.monotonic", "random.random", "secrets.randbits", "os.urandom",
    ):  # fmt: skip
        monkeypatch.setattr(name, impure)
    assert decide(PAIR, WORK) == before


def test_a_gain_that_is_too_small_is_none():
    small = ran(lambda plan: 100.0 if plan.plain else 101.0)
    decision = decide(PAIR, WORK, run=small)
    assert decision.chosen.plan.plain
    said(decision, "Speculation is refused", "1.01 times", "too little to rely on")


def test_of_equals_one_that_follows_the_text_is_taken():
    def speeds(fixed: float) -> Run:
        return ran(lambda plan: {None: 200.0, 0: 100.0}.get(plan.draft_length, fixed))

    assert decide(PAIR, WORK, run=speeds(201.0)).chosen.plan.draft_length is None
    assert decide(PAIR, WORK, run=speeds(206.0)).chosen.plan.draft_length


def test_a_busy_machine_is_mentioned():
    quiet, decision = decide(PAIR, WORK), decide(profile(target(steady=False), draft()), WORK)
    said(decision, "busy", "--refresh")
    assert not any("busy" in reason for reason in quiet.reasons)


@pytest.mark.parametrize("drafter", ["model", "hybrid"])
def test_what_is_no_pass_of_the_draft_takes_time_too(drafter):
    quick, slow = (
        Forecast(replace(profile(target(), draft()), draft_overhead_s=seconds), WORK).estimate(
            Plan(CPU, CPU, drafter, 3)
        )
        for seconds in (0.0, 1e-3)
    )
    assert slow.tokens == quick.tokens
    assert slow.target_s == quick.target_s
    # For each of three drafted tokens, in the rounds that the model drafts.
    share = (slow.draft_s - quick.draft_s) / 3e-3
    assert share == pytest.approx(1.0 if drafter == "model" else 0.9)
    assert slow.rate < quick.rate


def test_a_dip_of_the_curve_is_used():
    decision = decide(profile(target(times=times(LLAMACPP)), draft(one_row_s=1e-4)), WORK)
    best = max(of(decision, drafter="model"), key=lambda one: one.prediction.tokens_per_second)
    lengths = [one.plan.draft_length for one in of(decision, drafter="model")]
    assert 3 in lengths, "four rows are the cheapest beyond one"
    assert 2 not in lengths
    assert best.plan.draft_length in (3, None)


def test_static_widths_are_priced():
    npu = target(Place("onnx", device="npu"), row_widths=(1, 4))
    decision = decide(profile(npu, draft()), WORK)
    assert not any(one.refused for one in decision.candidates)
    fixed = max(
        (one for one in of(decision, drafter="model") if one.plan.draft_length),
        key=lambda one: one.prediction.tokens_per_second,
    )
    assert fixed.plan.draft_length == 3, "a fifth row would take a second pass"
    alone = decide(profile(replace(npu, row_widths=(1,)), draft()), WORK)
    assert alone.chosen.plan.plain


def test_a_place_with_wrong_numbers_is_reported_and_not_used():
    wrong = Parity(0.2, 3.0, usable=False, reason="its numbers are wrong")
    decision = decide(profile(target(), target(GPU, 1e-3, parity=wrong), draft()), WORK)
    assert decision.chosen.plan.target == CPU
    (refused,) = of(decision, target=GPU)
    assert "its numbers are wrong" in refused.refused
    nothing = refused.prediction
    assert (nothing.tokens_per_second, nothing.ttft_s, nothing.block_efficiency) == (0, 0, 0)
    said(decision, "The target is not used at gguf Vulkan0", "its numbers are wrong")
    with pytest.raises(
        PlanError, match=r"no place for the target is usable.*its numbers are wrong"
    ):
        decide(profile(target(parity=wrong), draft()), WORK)


def test_a_draft_place_with_wrong_numbers_is_refused_too():
    wrong = Parity(0.2, 3.0, usable=False, reason="its numbers are wrong")
    decision = decide(profile(target(), draft(GPU, 1e-5, parity=wrong), draft()), WORK)
    assert decision.chosen.plan.draft != GPU
    refused = of(decision, draft=GPU)
    assert refused
    assert all("its numbers are wrong" in one.refused for one in refused)


def test_a_place_that_failed_has_no_times_and_is_refused():
    failed = Parity(0.0, 0.0, usable=False, reason="it cannot be loaded")
    dead = target(GPU, times=(), rss_bytes=0, weight_bytes=0, parity=failed)
    decision = decide(profile(target(), dead, draft()), WORK)
    assert decision.chosen.plan.target == CPU


def test_a_recurrent_target_decodes_plainly():
    decision = decide(profile(target(rolls_back=False), draft()), WORK)
    assert decision.chosen.plan.plain
    refused = [one for one in decision.candidates if not one.plan.plain]
    assert refused
    assert all("would take another pass" in one.refused for one in refused)
    recurrent = decide(profile(target(), draft(rolls_back=False)), WORK)
    refused = of(recurrent, drafter="model")
    assert refused
    assert all("recurrent" in one.refused for one in refused)
    assert not of(recurrent, drafter="tree")


def test_a_target_that_verifies_chains_only_gets_chains():
    decision = decide(profile(target(branches=1), draft()), WORK)
    assert not of(decision, drafter="tree")
    assert of(decision, drafter="recycle")


def test_without_a_draft_model_there_are_still_drafters():
    decision = decide(profile(target()), WORK)
    assert {one.plan.drafter for one in decision.candidates} == {"none", "lookup", "recycle"}


def test_a_drafter_that_was_not_measured_is_not_planned():
    some = [one for one in PAIR.rounds if one.drafter in ("none", "model")]
    decision = decide(replace(PAIR, rounds=tuple(some)), WORK)
    assert {one.plan.drafter for one in decision.candidates} == {"none", "model"}
    assert decide(replace(PAIR, rounds=()), WORK).chosen.plan == Plan(CPU)


def test_rounds_of_the_nearest_temperature_count():
    greedy = {one.drafter: one for one in PAIR.rounds}
    hot = replace(greedy["recycle"], temperature=0.8, tokens=3.0)
    both = replace(PAIR, rounds=(*PAIR.rounds, hot))
    plan = Plan(CPU, None, "recycle", None)
    estimates = [
        Forecast(both, replace(WORK, temperature=t)).estimate(plan).tokens for t in (0, 0.3, 0.7)
    ]
    assert estimates == [1.4, 1.4, 3.0]


class TestWhatRan:
    """The best plans by formula run, and what was measured decides."""

    def test_the_fastest_that_ran_is_chosen_and_its_spread_is_said(self):
        plans: list[Plan] = []

        def speed(plan: Plan) -> float:
            plans.append(plan)
            return {"none": 100.0, "hybrid": 250.0}.get(plan.drafter, 150.0)

        decision = decide(replace(PAIR, texts="texts of mine.jsonl"), WORK, run=ran(speed))
        assert decision.chosen.plan.drafter == "hybrid"
        assert decision.chosen.measured is not None
        assert decision.chosen.tokens_per_second == 250.0
        said(
            decision, "decoded 250 tokens/s, 2.50 times the 100 of plain",
            "from 1.88 to 3.75 times on 2 of the texts of mine.jsonl", "in turns",
        )  # fmt: skip
        assert plans[0] == Plan(CPU)
        assert len(plans) == len(set(plans)) <= 7
        measured = [one for one in decision.candidates if one.measured]
        assert [one.plan for one in measured] != plans, "they are listed best first"
        assert {one.plan for one in measured} == set(plans)
        assert list(decision.candidates[: len(measured)]) == measured

    def test_plans_that_hardly_differ_do_not_all_run(self):
        apart = profile(target(), draft(), draft(GPU), draft(SECOND))
        seen: list[Plan] = []
        decide(apart, WORK, run=ran(lambda plan: float(bool(seen.append(plan)) or 1)))
        kinds = [(p.target, p.drafter, p.draft_length is None, p.schedule) for p in seen]
        assert len(set(kinds)) == len(kinds)
        assert any(plan.schedule == OVERLAPPED for plan in seen)

    def test_a_plan_far_behind_by_formula_does_not_run(self):
        seen: list[Plan] = []
        slow = profile(target(), target(SECOND, 80e-3), draft())
        decide(slow, WORK, run=ran(lambda plan: float(bool(seen.append(plan)) or 1)))
        assert all(plan.target == CPU for plan in seen)

    def test_a_plan_that_stopped_early_is_not_chosen(self):
        def run(plans, together):
            found = ran(lambda plan: 100.0 if plan.plain else 120.0)(plans, together).found
            early = replace(found[plans[-1]], speedup=9.0, tokens_per_second=900, turns=6)
            return Trials(found | {plans[-1]: early})

        decision = decide(PAIR, WORK, run=run)
        assert decision.chosen.tokens_per_second == 120.0

    def test_a_plan_that_failed_is_refused_with_the_reason(self):
        def run(plans, together):
            found = ran(lambda plan: 100.0 if plan.plain else 120.0)(plans, together).found
            return Trials(found | {plans[1]: "the device went away"})

        decision = decide(PAIR, WORK, run=run)
        (refused,) = [one for one in decision.candidates if one.refused]
        assert refused.refused == "the device went away"
        assert refused.plan != decision.chosen.plan

    def test_if_nothing_was_measured_plain_decoding_is_chosen_and_that_is_said(self):
        def run(plans, together):
            return Trials({plans[1]: "it crashed"}, "it crashed")

        decision = decide(PAIR, WORK, run=run)
        assert not decide(PAIR, WORK).chosen.plan.plain
        assert decision.chosen.plan.plain
        said(
            decision,
            "Plain decoding is chosen, since no plan that drafts could be measured: it crashed",
        )
        assert [one.refused for one in decision.candidates if one.refused] == ["it crashed"]

    def test_plain_decoding_that_failed_is_replaced_by_another_or_stays(self):
        def run(plans, together):
            return Trials(dict.fromkeys(plans, "it crashed"), "it crashed")

        slow = profile(target(), target(SECOND, 80e-3))
        assert decide(slow, WORK, run=run).chosen.plan == Plan(SECOND)
        alone = decide(PAIR, WORK, run=run)
        assert alone.chosen.plan == Plan(CPU)
        assert "it crashed" in {one.refused for one in alone.candidates}

    def test_drafts_are_compared_with_plain_decoding_that_stopped_early(self):
        def run(plans, together):
            found = ran(lambda plan: 100.0 if plan.plain else 120.0)(plans, together).found
            return Trials(found | {plans[0]: replace(found[plans[0]], turns=6)})

        assert not decide(PAIR, WORK, run=run).chosen.plan.plain

    @pytest.mark.parametrize("busy", [None, 0.02, 0.5])
    def test_a_machine_that_was_busy_while_plans_ran_disturbs_the_plan(self, busy):
        def run(plans, together):
            return replace(ran(lambda plan: 100.0)(plans, together), busy=busy)

        for known, most in ((None, busy), (0.01, busy or 0.01), (0.6, 0.6)):
            decision = decide(replace(PAIR, busy=known), WORK, run=run)
            assert decision.busy == most
            assert bool(decision.disturbed) == (most is not None and most >= 0.5)

    def test_models_are_loaded_one_after_the_other_where_all_do_not_fit(self):
        asked: list[bool] = []

        def run(plans, together):
            asked.append(together)
            return Trials()

        large = {"rss_bytes": 400_000_000, "weight_bytes": 400_000_000}
        two = profile(target(**large), target(SECOND, **large), draft(), draft(SECOND))
        least = footprint(two, Plan(CPU, CPU, "model", 8), 4096).total
        for memory in (None, 10 * least, with_spare(least)):
            decide(two, WORK, memory, run=run)
        assert asked == [True, True, False]
