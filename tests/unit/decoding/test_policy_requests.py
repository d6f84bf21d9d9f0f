"""Per request: another policy for one of them; several drafters, asked and read for as it pays."""

from __future__ import annotations

from typing import Any

import pytest
from drafting_table import HOT, PROMPT, VOCAB, Table
from policy_world import CURVE, World, same

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import DrafterParts, DraftStep, Offer
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import CostCurve, Fixed, MeasuredCost, RoundRecord, for_request
from edgedec.decoding.policy.cost import CatchUp
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError
from edgedec.testing import FakeModel, PacedModel
from tests.virtual_time import VirtualClock

TARGET = FakeModel(VOCAB, context=2, sharpness=3.0)
DRAFT = FakeModel(VOCAB, seed=1, context=2, sharpness=3.0, like=(TARGET, 0.8))


def state(policy: object) -> Any:
    """All a policy knows, as something that can be compared."""
    if isinstance(policy, (list, tuple)):
        return [state(part) for part in policy]
    if isinstance(policy, dict):
        return {key: state(part) for key, part in policy.items()}
    if hasattr(policy, "__dict__"):
        return state(vars(policy))
    return repr(policy)


class Loop:
    """An engine that lives for several requests, in virtual time."""

    def __init__(self) -> None:
        clock = VirtualClock()
        target = PacedModel(TARGET, lambda rows, context: CURVE.at(rows), clock)
        draft = PacedModel(DRAFT, lambda rows, context: 0.8e-3, clock)
        built = drafting.create("adaptive", DrafterParts(VOCAB, draft.open(400)))
        self.policy = MeasuredCost(CURVE, 0.8e-3)
        rule = acceptance.rule()
        self.engine = Engine(target.open(400), built, self.policy, rule, clock.now)

    def run(self, **fields: Any) -> tuple[list[int], Metrics]:
        sampler, metrics = Sampler(SamplingParams(), VOCAB, PROMPT), Metrics()
        request = Request(PROMPT, sampler, StopRule(max_new_tokens=80), **fields)
        for _ in self.engine.run(request, metrics):
            pass
        return sampler.history, metrics


def test_a_request_brings_its_own_policy_and_leaves_no_trace() -> None:
    loop = Loop()
    text, _ = loop.run()
    before = state(loop.policy)
    for choice, sources, longest in (
        ({"drafter": "none"}, set(), 0),
        ({"draft_length": 0}, set(), 0),
        ({"draft_length": 3}, {"lookup", "model", "tree", "recycle"}, 3),
        ({"drafter": "model", "draft_length": 2}, {"model"}, 2),
        ({"drafter": "recycle", "draft_length": 5}, {"recycle"}, 5),
        ({"drafter": "lookup"}, {"lookup"}, 16),
    ):
        found, metrics = loop.run(policy=for_request(loop.policy, **choice))
        assert found == text
        assert set(metrics.sources) <= sources
        assert bool(metrics.drafted_tokens) == bool(longest)
        assert max(metrics.accepted_lengths) <= longest
        assert state(loop.policy) == before
    # A control: a request of the engine's own policy does leave one.
    loop.run()
    assert state(loop.policy) != before


def test_the_override_leaves_the_length_to_a_copy_of_the_engines_policy() -> None:
    world, own = World(same(0.9)), MeasuredCost(CURVE, 0.8e-3)
    world.run(own, 300)
    only = for_request(own, drafter="model")
    assert only.name == own.name
    before = world.drafted
    world.run(only, 60)
    assert world.drafted > before
    world.run(for_request(own, drafter="tree"), 60)  # this world has a chain alone
    assert world.drafted - before < 60 * 2
    assert isinstance(for_request(own, draft_length=4), Fixed)


def test_fixed_lengths() -> None:
    assert (Fixed(4).limits().nodes, Fixed(4).limits().depth) == (4, 4)
    assert (Fixed(8, 3).limits().nodes, Fixed(8, 3).limits().depth) == (8, 3)
    assert Fixed(0).limits().nodes == 0
    assert Fixed(2).go_on(DraftStep(Offer("draft", lambda: 0.0)))
    for bad in ((-1, None), (3, 0)):
        with pytest.raises(InputError):
            Fixed(*bad)


# -- several drafters behind one ----------------------------------------------------------------


def test_only_chains_are_drafted_where_only_chains_are_verified() -> None:
    def parts(**changes: Any) -> DrafterParts:
        return DrafterParts(VOCAB, DRAFT.open(100), **changes)

    def arms(name: str, parts: DrafterParts) -> tuple[str, ...]:
        drafter = drafting.create(name, parts)
        assert isinstance(drafter, CompositeDrafter)
        return drafter.arms

    assert arms("adaptive", parts()) == ("lookup", "model", "tree", "recycle")
    assert arms("adaptive", parts(branches=1)) == ("lookup", "model", "recycle")
    assert arms("hybrid", parts()) == ("lookup", "model")
    assert arms("text", DrafterParts(VOCAB)) == ("lookup", "recycle")
    with pytest.raises(InputError, match="'text'"):
        drafting.create("adaptive", DrafterParts(VOCAB))


def test_a_look_that_came_to_nothing_is_not_computed_again() -> None:
    table = Table("adaptive", HOT)

    def curious(step: DraftStep) -> bool:
        if step.offer.source == "model":
            step.offer.confidence()
        return step.offer.source == "recycle"

    for _ in range(6):
        draft = table.propose(4, 4, curious)
        assert draft.passes == 1
        known = len(table.sampler.history)
        table.settle(draft)
        assert table.session.length == known  # with the root, which was computed


@pytest.mark.parametrize("name", ["model", "tree", "adaptive", "hybrid"])
def test_nothing_is_read_that_was_not_agreed_to(name: str) -> None:
    table = Table(name, prompt=[(7 * n + n // 5) % 13 for n in range(60)])
    behind: list[int] = []

    def no(step: DraftStep) -> bool:
        if step.behind:
            assert step.offer.costly
            behind.append(step.behind)
        return False

    assert table.propose(4, 4, no).drafted == 0
    assert behind
    assert set(behind) == {59}
    assert table.session.length == table.draft.passes == 0
    assert table.propose(4, 4, lambda step: step.offer.source != "lookup").drafted > 0
    assert table.session.length == 59


def test_a_long_prompt_is_read_in_the_chunks_that_are_told() -> None:
    table = Table("model", prompt=[(7 * n + n // 5) % 13 for n in range(60)], prefill_at_once=16)
    told, held = [], [0]

    def read(step: DraftStep) -> bool:
        if step.behind:
            told.append((step.behind, step.reads))
        return bool(step.behind)

    for _ in range(4):
        table.propose(4, 4, read)
        held.append(table.session.length)
    assert told == [(59, 16), (43, 16), (27, 16), (11, 11)]
    assert held == [0, 16, 32, 48, 59]


# -- what reading and asking cost ---------------------------------------------------------------


def test_reading_is_weighed_against_what_is_left_of_the_text() -> None:
    rate = 100.0  # a token is worth 10 ms; reading one takes 0.15 ms, 1.5% of that
    catch_up = CatchUp(1e-3)
    catch_up.begin(1000)
    assert catch_up.pays(600, 1.0, rate)
    assert not catch_up.pays(60000, 1.0, rate)
    assert not catch_up.pays(600, 0.0, rate)
    # Nobody reads for the last words.
    catch_up.begin(4)
    assert not catch_up.pays(600, 1.0, rate)
    # What has been going on for long may go on as long.
    catch_up.begin(100_000)
    assert not catch_up.pays(20_000, 1.0, rate)
    for _ in range(5000):
        assert not catch_up.pays(20_000, 0.0, rate)  # nor does the allowance pay for it yet
        catch_up.round(1)
    assert catch_up.pays(20_000, 1.0, rate)


def test_what_reading_took_corrects_the_estimate() -> None:
    catch_up = CatchUp(1e-3)
    catch_up.begin(1000)
    assert catch_up.pays(600, 1.0, 100.0)
    for _ in range(9):
        assert catch_up.pays(100, 9.0, 1.0)
        catch_up.tokens = 100
        catch_up.took(100 * 50e-3)
    assert not catch_up.pays(600, 1.0, 100.0)


def queried(behind: int, rounds: int = 12, at_once: int = 512) -> int:
    """In how many of so many rounds without a draft, each of 10 ms of it, drafters are queried."""
    policy, found, plain_s = MeasuredCost(CURVE, 0.05e-3), 0, CURVE.at(1)
    policy.begin(1000)
    for done in range(rounds):
        if policy.limits().nodes:
            found += 1
            policy.go_on(DraftStep(Offer("lookup", lambda: 0.0, rivals=["model"])))
            if left := max(0, behind - done * at_once):
                model = Offer("model", lambda: 0.9, costly=True)
                assert policy.go_on(DraftStep(model, behind=left, reads=min(left, at_once)))
        policy.observe(RoundRecord(0, 0, 0, 1, 1, 10e-3, plain_s, plain_s + 10e-3, "none"))
    return found


def test_a_prompt_is_read_to_its_end() -> None:
    # Reading takes long and drafts nothing, but is not what is rationed.
    assert queried(behind=6000) == 12
    # The control: the same time spent on queries that come to nothing.
    assert queried(behind=0) < 12


def asked(policy: MeasuredCost, ask_s: float, rounds: int) -> int:
    """How many of so many rounds asked, for nothing."""
    count, plain_s = 0, policy.lone_row_s or 0.0
    for _ in range(rounds):
        asks = policy.limits().nodes > 0
        count += asks
        policy.observe(RoundRecord(0, 0, 0, 1, 1, asks * ask_s, plain_s, plain_s, "none"))
    return count


def plain(seconds: float) -> MeasuredCost:
    return MeasuredCost(CostCurve((1, 2), (seconds, 2 * seconds)))


def test_asking_is_rationed_where_it_shows() -> None:
    # 25 microseconds beside 20 ms do not show; beside 0.6 ms they are 4%.
    assert asked(plain(20e-3), 25e-6, 500) == 500
    policy = plain(0.6e-3)
    often = asked(policy, 25e-6, 1000)
    assert often * 25e-6 < 0.005 * 1000 * 0.6e-3
    assert often > 25
    # Another text may be another one.
    policy.begin(1000)
    assert asked(policy, 25e-6, 20) == 9
