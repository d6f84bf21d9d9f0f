"""What the planner chooses, what it refuses, and whether it says why."""

from dataclasses import replace

import pytest

from edgedec.errors import MemoryBudgetError, PlanError
from edgedec.placement.place import Place
from edgedec.placement.plan import OVERLAPPED, SEQUENTIAL, Decision, Plan, Prediction
from edgedec.placement.planner import decide
from edgedec.placement.planner.footprint import footprint
from edgedec.placement.planner.retreat import size
from edgedec.placement.profile import Contention, Parity
from edgedec.simulation.predict import predict
from tests.profiles import CPU, FIRST, GPU, SECOND, WORK, draft, fastest, of, profile, target, times
from tests.simulated import trace

LLAMACPP = {1: 8.0, 2: 14.0, 3: 19.8, 4: 14.3, 5: 20.6, 6: 26.2, 7: 26.0, 8: 25.6, 16: 38.0}
PAIR = profile(target(), draft())


def said(decision: Decision, *words: str) -> str:
    """The one reason that has all these words."""
    (found,) = (one for one in decision.reasons if all(word in one for word in words))
    assert found.endswith(".")
    return found


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
    said(decision, "busy", "profile it again")
    uncertain = [float(said(one, "uncertainty").split()[-1][:-2]) for one in (quiet, decision)]
    assert uncertain[1] > uncertain[0] + 5
    assert not any("busy" in reason for reason in quiet.reasons)


def test_a_dip_of_the_curve_is_used():
    decision = decide(profile(target(times=times(LLAMACPP)), draft(one_row_s=1e-4)), WORK)
    best = max(of(decision, drafter="model"), key=lambda one: one.prediction.tokens_per_second)
    lengths = [one.plan.draft_length for one in of(decision, drafter="model")]
    assert 3 in lengths, "four rows are the cheapest beyond one"
    assert 2 not in lengths
    assert best.plan.draft_length in (3, None)


def test_static_widths_are_a_constraint():
    npu = target(Place("onnx", device="npu"), row_widths=(1, 4))
    decision = decide(profile(npu, draft()), WORK)
    usable = [one for one in decision.candidates if not one.refused and not one.plan.plain]
    assert {one.plan.draft_length for one in usable} <= {1, 2, 3}
    assert of(decision, drafter="model", draft_length=3)
    refused = {one.refused for one in decision.candidates if one.refused}
    assert refused == {"a pass has up to 17 rows, and the widest graph there takes 4"}
    alone = decide(profile(replace(npu, row_widths=(1,)), draft()), WORK)
    assert alone.chosen.plan.plain
    said(alone, "no plan that drafts can be used here: a pass has up to", "graph there takes 1")


def test_a_place_with_wrong_numbers_is_reported_and_not_used():
    wrong = Parity(0.2, 3.0, usable=False, reason="its numbers are wrong")
    decision = decide(profile(target(), target(GPU, 1e-3, parity=wrong), draft()), WORK)
    assert decision.chosen.plan.target == CPU
    (refused,) = of(decision, target=GPU)
    assert "its numbers are wrong" in refused.refused
    said(decision, "The target is not used at gguf Vulkan0", "its numbers are wrong")
    with pytest.raises(PlanError, match=r"no place to run the target.*its numbers are wrong"):
        decide(profile(target(parity=wrong), draft()), WORK)


def test_a_draft_place_with_wrong_numbers_is_refused_too():
    wrong = Parity(0.2, 3.0, usable=False, reason="its numbers are wrong")
    decision = decide(profile(target(), draft(GPU, 1e-5, parity=wrong), draft()), WORK)
    assert decision.chosen.plan.draft != GPU
    assert all("its numbers are wrong" in one.refused for one in of(decision, draft=GPU))


def test_a_place_that_failed_has_no_times_and_is_refused():
    failed = Parity(0.0, 0.0, usable=False, reason="it cannot be loaded")
    dead = target(GPU, times=(), rss_bytes=0, weight_bytes=0, parity=failed)
    decision = decide(profile(target(), dead, draft()), WORK)
    assert decision.chosen.plan.target == CPU


def test_a_recurrent_target_decodes_plainly():
    decision = decide(profile(target(rolls_back=False), draft()), WORK)
    assert decision.chosen.plan.plain
    refused = [one for one in decision.candidates if not one.plan.plain]
    assert all("recurrent and cannot take back" in one.refused for one in refused)
    recurrent = decide(profile(target(), draft(rolls_back=False)), WORK)
    assert all("recurrent" in one.refused for one in of(recurrent, drafter="model"))
    assert not of(recurrent, drafter="tree")


def test_a_target_that_verifies_chains_only_gets_chains():
    decision = decide(profile(target(tree=False), draft()), WORK)
    assert not of(decision, drafter="tree")
    assert of(decision, drafter="recycle")


def test_without_a_draft_model_there_are_still_drafters():
    decision = decide(profile(target()), WORK)
    assert {one.plan.drafter for one in decision.candidates} == {"none", "lookup", "recycle"}


# -- memory -------------------------------------------------------------------------------------

HEAVY = profile(
    target(rss_bytes=10_000_000, kv_bytes_per_token=10_000),
    draft(rss_bytes=5_000_000, kv_bytes_per_token=1_000),
    right=0.95,
)
FULL = decide(HEAVY, WORK)


def peak(plan: Plan, context: int) -> int:
    return footprint(HEAVY, plan, context).total


def test_with_enough_memory_nothing_is_given_up():
    enough = max(one.prediction.peak_bytes for one in FULL.candidates)
    decision = decide(HEAVY, WORK, enough)
    assert decision.chosen == FULL.chosen
    assert decision.max_context == 4096
    said(decision, "It holds up to", size(enough), "4096 tokens")


def test_a_little_less_costs_drafted_tokens_while_speed_is_kept():
    best = max(of(FULL, drafter="model"), key=lambda one: one.plan.draft_length or 0).plan
    assert best.draft_length is not None
    less = decide(HEAVY, WORK, peak(best, 4096) - 1)
    (kept,) = (one for one in of(less, drafter="model") if one.plan.draft_length is not None)
    assert kept.plan.draft_length == best.draft_length - 1
    assert kept.prediction.peak_bytes == peak(kept.plan, 4096), "the context must stay"
    assert kept.prediction.tokens_per_second > 0.96 * fastest(FULL, drafter="model")


def test_then_context_where_nobody_asked_for_one():
    decision = decide(HEAVY, WORK, 54_000_000)
    assert not decision.chosen.plan.plain
    assert WORK.tokens < decision.max_context < 4096
    assert peak(decision.chosen.plan, decision.max_context) <= 54_000_000
    assert peak(decision.chosen.plan, decision.max_context + 1) > 54_000_000
    said(decision, "More memory would allow a context of up to 4096 tokens")


def test_a_context_that_was_asked_for_stays():
    asked = replace(WORK, max_context=4096)
    decision = decide(HEAVY, asked, 79_000_000)
    assert decision.max_context == 4096
    assert decision.chosen.plan.draft is None, "the draft must go before the context does"
    over = [one for one in decision.candidates if one.refused]
    assert over
    for one in over:
        assert f"needs {size(one.prediction.peak_bytes)}" in one.refused
        assert "a context of 4096 tokens" in one.refused
    said(decision, "would be", "as fast, but needs")


def test_then_drafted_tokens_again_and_the_draft_last():
    needed = WORK.tokens
    one = peak(Plan(CPU, CPU, "model", 1), needed)
    decision = decide(HEAVY, WORK, one)
    assert decision.max_context == needed
    assert decision.chosen.plan.draft_length == 1
    assert decide(HEAVY, WORK, one - 1).chosen.plan.draft is None


def test_an_impossible_budget_names_the_smallest():
    least = peak(Plan(CPU), WORK.tokens)
    with pytest.raises(MemoryBudgetError, match="the smallest possible is plain on onnx") as caught:
        decide(HEAVY, WORK, least - 1)
    named = int(str(caught.value).split("--memory ")[1].split("MB")[0])
    assert decide(HEAVY, WORK, named * 10**6).chosen.plan.plain
    assert named * 10**6 - least < 10**6
    assert decide(HEAVY, WORK, least).chosen.plan == Plan(CPU)


def test_a_context_beyond_the_model_is_refused():
    with pytest.raises(MemoryBudgetError, match="5000 tokens: expected 4096"):
        decide(HEAVY, replace(WORK, max_context=5000))


# -- places -------------------------------------------------------------------------------------


BY_BOTH = pytest.mark.parametrize("look", [None, predict], ids=["formula", "replay"])


@BY_BOTH
def test_a_slow_draft_on_a_device_of_its_own_overlaps(look):
    apart = profile(target(), draft(CPU, 8e-3 / 3), draft(GPU, 8e-3 / 3), right=0.8)
    decision = decide(apart, WORK, None, look)
    assert decision.chosen.plan.schedule == OVERLAPPED
    assert fastest(decision, schedule=OVERLAPPED) > 1.1 * fastest(decision, schedule=SEQUENTIAL)
    assert decision.chosen.plan.draft == GPU
    said(decision, "Overlap is used", "the draft works while the target verifies")


@BY_BOTH
def test_two_halves_of_a_processor_do_not_when_all_of_it_is_faster(look):
    halves = profile(
        target(CPU, 8e-3),
        target(FIRST, 15e-3, row_s=2e-3),
        draft(CPU, 1e-3),
        draft(SECOND, 1e-3),
        contention=[Contention(FIRST.label, SECOND.label, 1.1, 1.1)],
    )
    decision = decide(halves, WORK, None, look)
    assert decision.chosen.plan.schedule == SEQUENTIAL
    said(decision, "Overlap is not used: its best plan", "times what is chosen")


def test_contention_counts():
    def best(factor: float) -> float:
        slowed = Contention(CPU.label, GPU.label, factor, factor)
        found = decide(profile(target(), draft(GPU, 2e-3), contention=[slowed]), WORK)
        return fastest(found, schedule=OVERLAPPED)

    assert best(2.2) < 0.7 * best(1.0)


def test_places_that_share_cores_cannot_overlap():
    decision = decide(PAIR, WORK)
    assert not of(decision, schedule=OVERLAPPED)
    said(decision, "Overlap is not used: no two places are apart")


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
    notes = ("the traces are without the draft: the vocabularies\nshare nothing.",)
    found = profile(target(), draft(), texts=[replace(trace(), draft=None)])
    decision = decide(replace(found, notes=notes), WORK)
    assert not any(one.plan.draft for one in decision.candidates)
    said(decision, "Left out: the traces are without the draft: the vocabularies share nothing.")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(1, "0.1 MB"), (10**6, "1.0 MB"), (1_234_567, "1.3 MB"), (2_000_000_001, "2.01 GB")],
)
def test_a_size_that_is_named_is_enough(count, shown):
    assert size(count) == shown


# -- texts and replays --------------------------------------------------------------------------


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


def test_a_text_that_changes_is_followed_rather_than_a_length_fixed():
    decision = decide(PAIR, WORK, None, predict)
    fixed = max(
        one.prediction.tokens_per_second
        for one in decision.candidates
        if one.plan.draft_length is not None
    )
    auto = fastest(decision, draft_length=None)
    if auto >= 0.97 * fixed:
        assert decision.chosen.plan.draft_length is None
    else:
        assert decision.chosen.prediction.tokens_per_second == fixed
