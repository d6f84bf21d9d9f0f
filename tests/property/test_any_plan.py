"""Whatever was measured, in whatever order: a decision keeps within its means."""

from __future__ import annotations

import dataclasses

from example_counts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import MACHINE
from simulated import WIDTHS, measured, rounds

from edgedec._support.fields import from_json, to_json
from edgedec.errors import MemoryBudgetError
from edgedec.memory.grant import with_spare
from edgedec.planning.choose import decide
from edgedec.planning.memory_fit import footprint
from edgedec.records.place import Place
from edgedec.records.profile import SCHEMA, Contention, Measured, Parity, PassTimes, Profile
from edgedec.records.workload import Workload

PLACES = (
    Place("onnx", threads=2),
    Place("onnx", threads=1, cores=(0,)),
    Place("gguf", threads=1, cores=(1,)),
    Place("gguf", device="Vulkan0"),
    Place("onnx", provider="SomeExecutionProvider"),
)
# A fixed length may be a little faster than what is taken, and drafts must be ahead of plain
# decoding by more than is uncertain: more memory may cost that much and no more.
CLOSE = 0.97
WORKLOADS = (Workload(20, 60), Workload(50, 30, 0.8), Workload(200, 100, 0.0, 600))


@st.composite
def models(draw: st.DrawFn, role: str) -> Measured:
    seconds = st.floats(1e-4, 1e-1)
    curves = draw(st.lists(st.tuples(*[seconds] * len(WIDTHS)), min_size=1, max_size=2))
    spread = draw(st.sampled_from([0.0, 0.02, 0.2]))
    times = tuple(
        PassTimes(100 * (i + 1), WIDTHS, curve, (spread,) * len(WIDTHS))
        for i, curve in enumerate(curves)
    )
    return measured(
        role,
        place=draw(st.sampled_from(PLACES)),
        times=times,
        prefill_s=draw(seconds),
        rss_bytes=draw(st.integers(0, 50_000_000)),
        kv_bytes_per_token=draw(st.integers(10, 20_000)),
        max_context=draw(st.sampled_from([1000, 4096])),
        row_widths=draw(st.sampled_from([None, None, (1,), (1, 4), (1, 4, 32)])),
        branches=draw(st.sampled_from([None, 1, 4])),
        parity=Parity(1.0, 0.0, usable=draw(st.sampled_from([True, True, True, False]))),
        steady=draw(st.booleans()),
        rolls_back=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    targets = draw(st.lists(models("target"), min_size=1, max_size=3, unique_by=_place))
    drafts = draw(st.lists(models("draft"), max_size=2, unique_by=_place))
    assume(any(model.parity.usable for model in targets))
    right = draw(st.sampled_from([0.05, 0.5, 0.9]))
    factor = draw(st.floats(1, 2.5))
    contention = [
        Contention(target.place.label, draft.place.label, factor, factor)
        for target in targets
        for draft in drafts
    ]
    made = rounds(right, with_model=bool(drafts), overhead_s=draw(st.floats(1e-6, 1e-3)))
    hot = tuple(dataclasses.replace(one, temperature=0.8) for one in made)
    return Profile(
        SCHEMA, MACHINE, "a bundle", {}, (*targets, *drafts), (*made, *hot),
        contention=tuple(contention),
    )  # fmt: skip


def _place(model: Measured) -> Place:
    return model.place


few = settings(max_examples=examples(25))


def within(profile: Profile, workload: Workload, memory: int | None):
    try:
        return decide(profile, workload, memory)
    except MemoryBudgetError:
        return None


@few
@given(profiles(), st.sampled_from(WORKLOADS), st.integers(1, 120_000_000))
def test_a_decision_never_takes_more_than_it_was_given(profile, workload, memory):
    decision = within(profile, workload, memory)
    if decision is None:
        return
    context = decision.max_context
    for plan in (decision.chosen.plan, *decision.fallbacks):
        assert with_spare(footprint(profile, plan, context).total) <= memory
    assert decision.chosen.prediction.peak_bytes <= memory
    assert context >= (workload.max_context or workload.tokens)
    assert workload.max_context in (None, context)


@few
@given(profiles(), st.sampled_from(WORKLOADS), st.none() | st.integers(1, 120_000_000))
def test_nothing_slower_than_plain_is_chosen_and_nothing_that_cannot_run(profile, workload, memory):
    decision = within(profile, workload, memory)
    if decision is None:
        return
    usable = [one for one in decision.candidates if not one.refused]
    plain = max(one.prediction.tokens_per_second for one in usable if one.plan.plain)
    assert decision.chosen in usable
    assert decision.chosen.prediction.tokens_per_second >= plain
    for plan in (decision.chosen.plan, *decision.fallbacks):
        target = profile.at("target", plan.target)
        assert target.parity.usable
        if not plan.plain:
            assert target.rolls_back
        if plan.drafter == "tree":
            assert target.tree
        if plan.draft is not None:
            draft = profile.at("draft", plan.draft)
            assert draft.parity.usable
            assert draft.rolls_back
    if decision.fallbacks:
        assert decision.fallbacks[-1].plain
    assert len(set(decision.fallbacks)) == len(decision.fallbacks)
    assert decision.chosen.plan not in decision.fallbacks
    assert all(reason.endswith(".") and "\n" not in reason for reason in decision.reasons)
    assert from_json(type(decision), to_json(decision), "x", MemoryBudgetError) == decision


@few
@given(
    profiles(),
    st.sampled_from(WORKLOADS),
    st.integers(1, 60_000_000),
    st.integers(0, 60_000_000),
)
def test_more_memory_is_never_slower(profile, workload, memory, more):
    before, after = (within(profile, workload, given) for given in (memory, memory + more))
    if before is None:
        return
    assert after is not None, "what fits into less must fit into more"
    rates = [one.chosen.prediction.tokens_per_second for one in (before, after)]
    # Where plain decoding is taken, drafts may be ahead by no more than is uncertain.
    sure = not before.chosen.plan.plain and not after.chosen.plan.plain
    if sure:
        assert rates[1] >= CLOSE * rates[0]
    plains = [fastest_plain(one) for one in (before, after)]
    assert plains[1] >= plains[0]


def fastest_plain(decision) -> float:
    return max(
        one.prediction.tokens_per_second
        for one in decision.candidates
        if one.plan.plain and not one.refused
    )


@few
@given(profiles(), st.sampled_from(WORKLOADS), st.randoms(use_true_random=False))
def test_the_order_of_measurements_does_not_matter(profile, workload, random):
    def shuffled(items):
        return tuple(random.sample(items, len(items)))

    other = dataclasses.replace(
        profile,
        measured=shuffled(profile.measured),
        contention=shuffled(profile.contention),
        rounds=shuffled(profile.rounds),
    )
    assert within(profile, workload, None) == within(other, workload, None)


@few
@given(profiles(), st.sampled_from(WORKLOADS))
def test_the_smallest_budget_that_is_named_is_enough_and_less_is_not(profile, workload):
    try:
        decide(profile, workload, 1)
    except MemoryBudgetError as error:
        named = str(error).partition("--memory ")[2].partition("MB")[0]
    if not named:  # no place was trained for such a context
        return
    assert within(profile, workload, int(named) * 10**6) is not None
    assert within(profile, workload, (int(named) - 1) * 10**6) is None
