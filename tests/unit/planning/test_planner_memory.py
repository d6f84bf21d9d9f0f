"""What the planner gives up when memory is short, and what it says of it."""

from dataclasses import replace

import pytest
from profiles import (
    CPU,
    WORK,
    draft,
    fastest,
    of,
    profile,
    ran,
    said,
    target,
)

from edgedec._support.amounts import size
from edgedec.errors import MemoryBudgetError
from edgedec.loading.sessions import fitted
from edgedec.memory.account import Account
from edgedec.memory.grant import with_spare
from edgedec.memory.levels import Costs, Level
from edgedec.planning.choose import decide
from edgedec.planning.memory_fit import footprint
from edgedec.records.plan import Decision, Plan
from edgedec.records.workload import LEAST_CONTEXT, Workload

HEAVY = profile(
    target(rss_bytes=10_000_000, kv_bytes_per_token=10_000),
    draft(rss_bytes=5_000_000, kv_bytes_per_token=1_000),
    right=0.95,
)
FULL = decide(HEAVY, WORK)


def needed(plan: Plan, context: int) -> int:
    """The memory that a plan must be given: its peak, and what is left spare."""
    return with_spare(footprint(HEAVY, plan, context).total)


class AsPlanned:
    """What opening measures, if that is what was planned."""

    caches = 1

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def of(self, level: Level, context: int, *, sampled: bool, beside: object = ()) -> Account:
        return footprint(HEAVY, self.plan, context)

    def without_draft(self, needed: int, granted: int) -> str:
        return ""

    fitting = Costs.fitting


def opened(decision: Decision, granted: int) -> int:
    """The context that opening a plan finds room for."""
    plan, most = decision.chosen.plan, decision.max_context
    return fitted(AsPlanned(plan), plan.drafter, granted, most, most)


def test_what_is_planned_can_be_opened(monkeypatch):
    amounts = range(54_000_000, 90_000_000, 1_700_001)
    for granted in amounts:
        decision = decide(HEAVY, WORK, granted)
        assert opened(decision, granted) == decision.max_context
    # Broken twin: a plan that takes the last byte.
    monkeypatch.setattr("edgedec.planning.memory_fit.with_spare", lambda needed: needed)
    with pytest.raises(MemoryBudgetError, match="a context of"):
        opened(decide(HEAVY, WORK, 58_000_000), 58_000_000)


def test_with_enough_memory_nothing_is_given_up():
    enough = with_spare(max(one.prediction.peak_bytes for one in FULL.candidates))
    decision = decide(HEAVY, WORK, enough)
    assert decision.chosen == FULL.chosen
    assert decision.max_context == 4096
    said(decision, "It holds up to", size(enough), "4096 tokens")


def test_what_does_not_grow_with_the_context_is_said():
    of_state = replace(HEAVY.measured[0], state_bytes=2_700_000)
    assert of_state.role == "target"
    others = [one for one in HEAVY.measured if one.role != "target"]
    decision = decide(replace(HEAVY, measured=(of_state, *others)), WORK)
    said(decision, "2.7 MB of its memory are the state of layers without keys", "does not grow")
    assert not any("the state of layers" in reason for reason in FULL.reasons)


def test_a_little_less_costs_drafted_tokens_while_speed_is_kept():
    best = max(of(FULL, drafter="model"), key=lambda one: one.plan.draft_length or 0).plan
    assert best.draft_length is not None
    less = decide(HEAVY, WORK, needed(best, 4096) - 1)
    (kept,) = (one for one in of(less, drafter="model") if one.plan.draft_length is not None)
    assert kept.plan.draft_length == best.draft_length - 1
    assert with_spare(kept.prediction.peak_bytes) == needed(kept.plan, 4096), (
        "the context must stay"
    )
    assert kept.prediction.tokens_per_second > 0.96 * fastest(FULL, drafter="model")


def test_then_context_where_nobody_asked_for_one():
    decision = decide(HEAVY, WORK, 54_000_000)
    assert not decision.chosen.plan.plain
    assert WORK.tokens < decision.max_context < 4096
    assert needed(decision.chosen.plan, decision.max_context) <= 54_000_000
    assert needed(decision.chosen.plan, decision.max_context + 1) > 54_000_000
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
    said(decision, "would be, by formula", "as fast, but needs")


def test_then_drafted_tokens_again_and_the_draft_last():
    one = needed(Plan(CPU, CPU, "model", 1), WORK.tokens)
    decision = decide(HEAVY, WORK, one)
    assert decision.max_context == WORK.tokens
    assert decision.chosen.plan.draft_length == 1
    assert decide(HEAVY, WORK, one - 1).chosen.plan.draft is None


def test_an_impossible_budget_names_the_smallest():
    least = needed(Plan(CPU), WORK.tokens)
    with pytest.raises(MemoryBudgetError, match="the smallest possible is plain on onnx") as caught:
        decide(HEAVY, WORK, least - 1)
    named = int(str(caught.value).split("--memory ")[1].split("MB")[0])
    assert decide(HEAVY, WORK, named * 10**6).chosen.plan.draft is None
    assert named * 10**6 - least < 10**6
    assert decide(HEAVY, WORK, least).chosen.plan == Plan(CPU)


def test_a_context_beyond_the_model_is_refused():
    with pytest.raises(MemoryBudgetError, match="5000 tokens: the target was trained for 4096"):
        decide(HEAVY, replace(WORK, max_context=5000))


def test_memory_that_nobody_gave_is_what_there_is():
    enough = with_spare(max(one.prediction.peak_bytes for one in FULL.candidates))
    free, given = decide(HEAVY, WORK, available=enough), decide(HEAVY, WORK, enough)
    assert free.memory is None
    said(free, f"of the {size(enough)} in total")
    said(given, f"of the {size(enough)} given")
    assert free.chosen == given.chosen
    tight = decide(HEAVY, WORK, available=54_000_000)
    assert tight.max_context == decide(HEAVY, WORK, 54_000_000).max_context < 4096
    refused = decide(HEAVY, replace(WORK, max_context=4096), available=79_000_000)
    over = [one.refused for one in refused.candidates if one.refused]
    assert over
    assert all(why.endswith("and 79.0 MB are all there is") for why in over)
    with pytest.raises(
        MemoryBudgetError, match=r"all there is, too little for any plan.*free \d+ MB"
    ):
        decide(HEAVY, WORK, available=1000)


def test_what_does_not_fit_is_set_against_the_choice_by_the_same_formula():
    """A trial that finds everything half as fast does not make it twice as good."""
    asked = replace(WORK, max_context=4096)
    words = ("would be, by formula", "but needs")
    predicted = decide(HEAVY, asked, 79_000_000)
    rates = {one.plan: one.prediction.tokens_per_second for one in predicted.candidates}
    halved = decide(HEAVY, asked, 79_000_000, ran(lambda plan: rates[plan] / 2))
    assert said(halved, *words) == said(predicted, *words)


def test_no_context_is_too_short_for_a_plan_file():
    decision = decide(HEAVY, Workload(1, 2), needed(Plan(CPU), LEAST_CONTEXT))
    assert decision.max_context == LEAST_CONTEXT
