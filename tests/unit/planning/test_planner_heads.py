"""Plans with a head: its chains, its passes beside the target's, its memory, and who can use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from profiles import CPU, GPU, WORK, fastest, of, profile, target
from simulated import LENGTH, lookup, measured, rounds

from benchmarks.simulation import cards
from benchmarks.simulation.elsewhere import Drafting, Sizes, profile_of
from benchmarks.simulation.roofline import parse
from edgedec.errors import PlanError
from edgedec.memory.grant import with_spare
from edgedec.planning.choose import decide
from edgedec.planning.estimate import Forecast
from edgedec.planning.memory_fit import footprint
from edgedec.profiling.together import bytes_together
from edgedec.records.place import Place
from edgedec.records.plan import Decision, Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.rounds import DrafterRounds, Drafts
from edgedec.records.workload import Workload

ONE = Place("onnx", threads=1)
# The chance that a token is right falls with depth, since the head reads its own states there.
FALLING = (0.8, 0.5, 0.25, 0.1, 0.04, 0.02, 0.01, 0.0)


def head(place: Place = CPU, one_row_s: float = 5e-4, **changes: object) -> Measured:
    return measured("head", one_row_s, row_s=one_row_s / 10, place=place, **changes)


def drafted(chances: Sequence[float] = FALLING, overhead_s: float = 1e-4) -> DrafterRounds:
    found = Drafts("head", 1.0, tuple(chances), LENGTH)
    tokens = 1 + sum(chances)
    return DrafterRounds("head", LENGTH, 0.0, 100, tokens, 9.0, float(LENGTH), overhead_s, (found,))


def both(chances: Sequence[float] = FALLING) -> DrafterRounds:
    one = drafted(chances)
    found = (lookup(0.1), replace(one.drafts[0], share=0.9))
    return replace(one, drafter="headed", drafts=found, draft_passes=0.9 * LENGTH)


def headed(
    *models: Measured, chances: Sequence[float] = FALLING, overhead_s: float = 0.0
) -> Profile:
    models = models or (target(shows_states=True), head())
    made = (*rounds(with_model=False), drafted(chances), both(chances))
    return replace(profile(*models, rounds=made), head_overhead_s=overhead_s)


def drafters(decision: Decision) -> set[str]:
    return {one.plan.drafter for one in decision.candidates}


def test_it_is_chosen_where_it_pays() -> None:
    decision = decide(headed(), WORK)
    assert decision.chosen.plan.drafter in ("head", "headed")
    assert decision.chosen.plan.draft is None
    assert fastest(decision, drafter="head") > 1.3 * fastest(decision, drafter="none")
    assert {"head", "headed"} <= drafters(decision)


def test_a_length_is_chosen_by_the_recorded_chains() -> None:
    """One chance for every token, as of the first, would draft longer chains than pay."""
    (best,) = of(decide(headed(), WORK), drafter="head", draft_length=2)
    assert best in decide(headed(), WORK).candidates
    constant = [FALLING[0] ** n for n in range(1, LENGTH + 1)]
    longer = decide(headed(chances=constant), WORK)
    lengths = [one.plan.draft_length for one in of(longer, drafter="head")]
    assert max(length or 0 for length in lengths) > 3


@pytest.mark.parametrize(
    "models",
    [
        (target(), head()),
        (target(shows_states=True),),
        (target(GPU, shows_states=True), head()),
    ],
    ids=["no states", "no head", "another format"],
)
def test_it_is_left_out_where_it_cannot_draft(models: tuple[Measured, ...]) -> None:
    found = headed(*models)
    assert drafters(decide(found, WORK)).isdisjoint({"head", "headed"})
    with pytest.raises(PlanError, match="needs a head"):
        Forecast(found, WORK).estimate(Plan(models[0].place, None, "head", 2))


def test_it_runs_with_its_targets_threads() -> None:
    """Its passes are those measured with as many threads, or nearly."""
    four = Place("onnx", threads=4)
    found = headed(
        target(four, shows_states=True), head(ONE, one_row_s=5e-3), head(CPU, one_row_s=1e-3)
    )
    assert found.head_beside(four) == found.measured[-1]
    plan = Plan(four, None, "head", 2)
    slow = replace(found, measured=found.measured[:-1])
    seconds = [Forecast(one, WORK).estimate(plan).draft_s for one in (found, slow)]
    assert seconds[1] == pytest.approx(5 * seconds[0])


def test_its_time_is_that_of_its_passes_and_what_python_takes() -> None:
    plan = Plan(CPU, None, "head", 3)
    row_s = head().seconds(1, WORK.middle)
    for overhead_s in (0.0, 2e-4):
        found = Forecast(headed(overhead_s=overhead_s), WORK)
        assert found.estimate(plan).draft_s == pytest.approx(3 * (row_s + overhead_s))
        assert found.estimate(plan).tokens == pytest.approx(1 + sum(FALLING[:3]))
    plain, with_head = (found.predict(one).ttft_s for one in (Plan(CPU), plan))
    read_s = (WORK.prompt_tokens - 1) * head().prefill_s
    assert with_head - plain > read_s > 0


def test_its_memory_counts_and_is_given_up_before_the_context() -> None:
    found = headed()
    plan = Plan(CPU, None, "headed", None)
    plain, whole = (footprint(found, one, 4096) for one in (Plan(CPU), plan))
    assert (plain.draft, plain.draft_kv) == (0, 0)
    assert whole.draft >= head().weight_bytes
    assert whole.draft_kv == head().kv_bytes_per_token * 4096
    everything = decide(found, WORK, with_spare(whole.total))
    assert everything.chosen.plan.drafter in ("head", "headed")
    assert everything.max_context == 4096
    less = decide(found, WORK, with_spare(footprint(found, plan, 1000).total))
    assert less.chosen.plan.drafter in ("head", "headed")
    assert less.memory is not None
    assert with_spare(plain.total) <= less.memory < with_spare(whole.total)
    assert less.max_context == 4096, "longer texts than 1000 tokens do without the head"
    assert less.chosen.prediction.peak_bytes <= less.memory
    short = Workload(WORK.prompt_tokens, WORK.new_tokens, max_context=4096)
    less = decide(found, short, with_spare(plain.total) + 1000)
    assert drafters(less) >= {"head", "headed"}
    assert all(one.refused for name in ("head", "headed") for one in of(less, drafter=name))
    assert less.max_context == 4096


def test_models_of_a_trial_that_stay_loaded_count_it() -> None:
    found = headed()
    plans = (Plan(CPU), Plan(CPU, None, "head", None), Plan(CPU, None, "headed", 2))
    alone, beside = (bytes_together(plans, found.at, one) for one in (None, head()))
    assert beside - alone == head().rss_bytes
    assert bytes_together(plans[:1], found.at, head()) == alone


def test_a_card_runs_it_on_its_processor() -> None:
    card = cards.load("raspberry-pi-5")
    how = Drafting((*rounds(with_model=False), drafted(), both()))
    assert not how.with_model, "a head's passes say nothing about a draft model"
    sizes = Sizes(parse("3B int4"), head=parse("100M int4"))
    found = profile_of(card, sizes, how)
    assert {one.role for one in found.measured} == {"target", "head"}
    assert {"head", "headed"} <= drafters(decide(found, WORK))
    without = profile_of(card, replace(sizes, head=None), how)
    assert drafters(decide(without, WORK)).isdisjoint({"head", "headed"})
