"""What the planner chooses, what it refuses, and whether it says why."""

from dataclasses import replace

import pytest

from edgedec.errors import PlanError
from edgedec.planning.choose import decide
from edgedec.planning.estimate import Forecast
from edgedec.planning.predict import predict
from edgedec.records.place import Place
from edgedec.records.plan import Plan, Prediction
from edgedec.records.profile import Parity
from tests.profiles import (
    CPU,
    GPU,
    PAIR,
    WORK,
    draft,
    fastest,
    of,
    profile,
    said,
    target,
    times,
)

LLAMACPP = {1: 8.0, 2: 14.0, 3: 19.8, 4: 14.3, 5: 20.6, 6: 26.2, 7: 26.0, 8: 25.6, 16: 38.0}


def test_it_drafts_where_that_pays_and_says_how_much():
    decision = decide(PAIR, WORK)
    assert not decision.chosen.plan.plain
    gain = decision.chosen.prediction.tokens_per_second / fastest(decision, drafter="none")
    assert gain > 1.3
    said(decision, decision.chosen.plan.label, f"{gain:.2f} times", "uncertainty")
    said(decision, "A round gives", "limits the speed")
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
    said(decision, "A round of it takes", "as long as a plain one")


def flat(row_ms: float) -> dict[int, float]:
    return {width: 8.0 + row_ms * (width - 1) for width in (1, 2, 4, 8, 16)}


def test_a_constant_cost_would_choose_drafts_that_lose():
    """The broken twin: a pass over many rows is thought to cost what one row does."""
    steep = {width: 8.0 * width**0.8 for width in (1, 2, 4, 8, 16, 32)}
    constant = dict.fromkeys(steep, 8.0)
    truth, believed = (
        profile(target(times=times(curve)), draft(), right=0.6) for curve in (steep, constant)
    )
    twin = decide(believed, WORK, None, predict).chosen.plan
    assert not twin.plain
    plain = predict(truth, Plan(CPU), WORK).tokens_per_second
    assert predict(truth, twin, WORK).tokens_per_second < 0.9 * plain, "the twin must lose"
    assert decide(truth, WORK, None, predict).chosen.plan.plain


def test_deciding_reads_no_clock_no_file_and_draws_nothing(monkeypatch):
    before = decide(PAIR, WORK)

    def impure(*args: object, **more: object) -> None:
        raise AssertionError("not pure")

    for name in (
        "builtins.open", "time.time", "time.perf_counter", "time.monotonic", "random.random",
        "secrets.randbits", "os.urandom", "numpy.random.default_rng",
    ):  # fmt: skip
        monkeypatch.setattr(name, impure)
    assert decide(PAIR, WORK) == before


def test_a_gain_that_is_uncertain_is_none():
    unsure = profile(target(times=times(flat(4.4), spread=0.2)), draft(), right=0.72)
    decision = decide(unsure, WORK)
    gain = fastest(decision) / fastest(decision, drafter="none")
    assert 1.0 < gain < 1.05
    assert decision.chosen.plan.plain
    said(decision, "Speculation is refused", "ahead by less than the", "uncertain")


def test_a_fixed_length_must_be_surer_than_one_that_follows_the_text():
    def only(auto: bool):
        def by_replay(profile, plan, workload):
            drafts = not plan.plain and (plan.draft_length is None) == auto
            return Prediction(112.0 if drafts else 100.0, 0.1, 1, 1.0)

        unsure = profile(target(times=times(flat(2.0), spread=0.3)), draft())
        return decide(unsure, WORK, None, by_replay).chosen.plan

    assert only(auto=True).draft_length is None
    assert only(auto=False).plain


def test_a_busy_machine_makes_it_wary_and_is_mentioned():
    quiet, decision = decide(PAIR, WORK), decide(profile(target(steady=False), draft()), WORK)
    said(decision, "busy", "Profile again")
    uncertain = [float(said(one, "uncertainty").split()[-1][:-2]) for one in (quiet, decision)]
    assert uncertain[1] > uncertain[0] + 5
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
    assert 0.9 < share < 1.01 if drafter == "model" else 0 < share < 1
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
    assert all("recurrent and cannot take back" in one.refused for one in refused)
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


def test_a_tree_of_a_fixed_size_is_weighed_with_the_branches_that_there_are() -> None:
    def tokens(branches: int | None) -> float:
        pair = profile(target(branches=branches), draft(), right=0.5)
        plan = Plan(CPU, CPU, "tree", 16, 2)
        return Forecast(pair, WORK).estimate(plan).tokens

    assert 1 < tokens(2) < tokens(None) == tokens(64)
