"""Plans that run in turns: on the same texts, in an order that alternates, in virtual time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kinds import in_full

from edgedec.decoding.tree import FloatArray
from edgedec.errors import PassFailed, ProfileError
from edgedec.loading import build
from edgedec.loading.sources import Models, Source
from edgedec.profiling import _trial_child, trial
from edgedec.profiling.trial import TrialJob, Turn, results
from edgedec.records.place import Place
from edgedec.records.plan import Plan
from edgedec.runtimes import registry
from edgedec.testing import FakeModel, PacedModel
from tests.virtual_time import VirtualClock

VOCAB = 16
QUICK, SLOW, DRAFT = (Place("onnx", threads=threads) for threads in (4, 2, 1))
PLAIN, SLOWER = Plan(QUICK), Plan(SLOW)
CHAIN = Plan(QUICK, DRAFT, "model", 3)
AUTO = Plan(QUICK, DRAFT, "model", None)
PASS_S = {QUICK: 10e-3, SLOW: 30e-3, DRAFT: 1e-3}
TARGET = FakeModel(VOCAB, seed=0, context=3, sharpness=3.0)
PROMPTS = ((3, 1, 4), (1, 5, 9, 2), (6, 5, 3, 5))


class World:
    """Fake models at places, whose passes take virtual time.

    Attributes:
        loaded: places in the order in which models were loaded there.
        closed: likewise, closed.

    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, like: float = 0.9) -> None:
        self.clock = VirtualClock()
        self.loaded: list[Place] = []
        self.closed: list[Place] = []
        self.draft = FakeModel(VOCAB, seed=1, context=3, sharpness=3.0, like=(TARGET, like))
        monkeypatch.setattr(registry, "load", self._load)
        same = SimpleNamespace(untouched=True, facts={})
        monkeypatch.setattr(build, "translate", lambda *args, **more: same)
        self.models = Models("x", None, {
            role: [Source(role, "onnx", Path(role), {}, SimpleNamespace, lambda: None)]
            for role in ("target", "draft")
        })  # fmt: skip

    def _load(self, format: str, path: Path, options: Any, for_draft: Any = ()) -> PacedModel:
        place = Place(format, threads=options.threads)
        self.loaded.append(place)
        model = self.draft if path.name == "draft" else TARGET
        seconds = PASS_S[place]
        found = PacedModel(model, lambda rows, _: seconds * (1 + 0.1 * (rows - 1)), self.clock)
        found.close = lambda: self.closed.append(place)  # type: ignore[method-assign]
        return found

    def run(self, *plans: Plan, **changes: Any) -> trial.Outcome:
        chosen = {"new_tokens": 24, **changes}
        job = TrialJob("x", None, plans, chosen.pop("prompts", PROMPTS), **chosen)
        return _trial_child.decode(job, self.models, self.clock)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_plans_are_compared_on_the_same_texts_in_turns(world: World) -> None:
    outcome = world.run(PLAIN, SLOWER, CHAIN)
    order = [(turn.text, turn.plan) for turn in outcome.turns]
    assert order == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert {turn.emitted for turn in outcome.turns} == {24}
    found = results((PLAIN, SLOWER, CHAIN), outcome.turns)
    assert found[0].tokens_per_second == pytest.approx(100, rel=1e-3)
    assert found[0].speedup == pytest.approx(1.0)
    assert found[1].speedup == pytest.approx(1 / 3, rel=1e-3)
    # A round takes 3 draft passes and one of 4 rows.
    per_round = 10 * 1.3 + 3
    expected = 10 * found[2].block_efficiency / per_round
    assert found[2].speedup == pytest.approx(expected, rel=0.1)
    assert min(found[2].texts) <= found[2].speedup <= max(found[2].texts)


def test_rounds_are_counted_by_position(world: World) -> None:
    rounds = world.run(PLAIN, CHAIN).rounds
    plain, chain = rounds
    assert plain is not None
    assert chain is not None
    assert (plain.tokens, plain.rows, plain.draft_passes, plain.drafts) == (1.0, 1.0, 0.0, ())
    (drafts,) = chain.drafts
    assert drafts.source == "model"
    assert 0.8 < drafts.share <= 1
    assert list(drafts.chances) == sorted(drafts.chances, reverse=True)
    assert drafts.chances[0] > 0.5
    assert chain.tokens == pytest.approx(1 + drafts.accepted(3), rel=0.1)
    assert chain.overhead_s == pytest.approx(0.0, abs=1e-6)


def test_pass_times_are_measured_once_for_plans_that_draft_by_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for plain decoding, nor where another model or length drafts."""
    given: list[tuple[Plan, bool]] = []
    real = build.build_engine

    def noting(plan: Plan, *rest: Any, policy: Any, **more: Any) -> Any:
        given.append((plan, policy is not None))
        return real(plan, *rest, policy=policy, **more)

    monkeypatch.setattr(build, "build_engine", noting)
    lookup, recycling = (Plan(QUICK, None, name, None) for name in ("lookup", "recycling"))
    world.run(PLAIN, lookup, AUTO, recycling, CHAIN, SLOWER, fewest=1, most=1)
    assert dict(given) == {
        PLAIN: False, lookup: False, AUTO: False, recycling: True, CHAIN: False, SLOWER: False,
    }  # fmt: skip


def test_a_draft_that_is_never_right_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the above: nothing is accepted, and drafting takes time."""
    world = World(monkeypatch, like=0.0)

    class Wrong(FakeModel):
        def logits(self, tokens: Any) -> FloatArray:
            return -TARGET.logits(tokens)

    world.draft = Wrong(VOCAB)
    outcome = world.run(PLAIN, CHAIN)
    assert outcome.rounds[1] is not None
    assert outcome.rounds[1].drafts[0].chances == (0.0, 0.0, 0.0)
    assert results((PLAIN, CHAIN), outcome.turns)[1].speedup == pytest.approx(10 / 16, rel=0.1)


def test_a_token_of_the_draft_model_is_timed(world: World) -> None:
    assert world.run(PLAIN, CHAIN).draft_token_s == pytest.approx(1e-3, rel=0.2)
    assert world.run(PLAIN, SLOWER).draft_token_s == 0.0


def test_only_the_best_go_on_and_plain_decoding_always_does(world: World) -> None:
    outcome = world.run(PLAIN, SLOWER, CHAIN, AUTO, fewest=3, most=3, finalists=2)
    turns = {plan: sum(turn.plan == plan for turn in outcome.turns) for plan in range(4)}
    assert turns[0] == 9
    assert turns[1] == 3
    assert sorted((turns[2], turns[3])) == [3, 9]
    alone = world.run(SLOWER, PLAIN, CHAIN, fewest=2, most=2, finalists=1)
    assert [turn.plan for turn in alone.turns[-3:]] == [0, 0, 0]


def test_repetitions_end_with_the_time_but_not_before_the_fewest(world: World) -> None:
    def count(**more: Any) -> int:
        outcome = world.run(PLAIN, SLOWER, finalists=2, most=9, **more)
        return max(turn.repetition for turn in outcome.turns) + 1

    assert count() == 1
    assert count(fewest=4) == 4
    assert 1 < count(budget_s=10.0) < 9


def test_models_are_loaded_once_or_one_plan_after_the_other(world: World) -> None:
    world.run(PLAIN, SLOWER, CHAIN, most=2, fewest=2, finalists=3)
    assert sorted(world.loaded, key=str) == sorted([QUICK, SLOW, DRAFT], key=str)
    assert sorted(world.closed, key=str) == sorted(world.loaded, key=str)
    world.loaded.clear()
    world.closed.clear()
    world.run(PLAIN, CHAIN, together=False)
    assert world.loaded == [QUICK, QUICK, DRAFT]
    assert sorted(world.closed, key=str) == sorted(world.loaded, key=str)


def test_no_turn_begins_when_the_time_is_up_and_what_was_measured_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PASS_S, SLOW, 2.0)
    plans = PLAIN, CHAIN, SLOWER
    apart = world.run(*plans, together=False)
    assert [(turn.plan, turn.text) for turn in apart.turns] == [
        (plan, text) for plan in (0, 1) for text in (0, 1, 2)
    ]
    together = world.run(*plans)
    assert [(turn.plan, turn.text) for turn in together.turns] == [(0, 0), (1, 0), (2, 0)]


def test_a_plan_that_fails_is_left_out_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(FakeModel):
        def logits(self, tokens: Any) -> FloatArray:
            raise PassFailed("the device went away")

    world.draft = Fails(VOCAB)
    outcome = world.run(PLAIN, CHAIN, SLOWER)
    assert list(outcome.failed) == ["1"]
    assert "the device went away" in outcome.failed["1"]
    assert {turn.plan for turn in outcome.turns} == {0, 2}
    monkeypatch.setattr(registry, "load", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.run(PLAIN)


def test_the_models_of_a_plan_that_fails_are_closed_before_the_next_are_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at_load: list[int] = []

    def load(format: str, path: Path, options: Any, for_draft: Any) -> PacedModel:
        open_at_load.append(len(world.loaded) - len(world.closed))
        found = world._load(format, path, options)
        if path.name == "draft":
            raise PassFailed("no such device")
        return found

    monkeypatch.setattr(registry, "load", load)
    world.run(PLAIN, CHAIN, SLOWER, together=False)
    # The draft itself, which failed to load, is not closed.
    assert open_at_load == [0, 0, 1, 1]


def test_without_plain_decoding_nothing_is_measured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: object) -> None:
        raise PassFailed("no such device")

    monkeypatch.setattr(registry, "load", load)
    outcome = world.run(PLAIN, CHAIN)
    assert (outcome.turns, outcome.failed) == ((), {"0": "no such device"})


def test_where_plain_decoding_fails_another_plain_plan_takes_its_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(format: str, path: Path, options: Any, for_draft: Any) -> PacedModel:
        if options.threads == SLOW.threads:
            raise PassFailed("no such device")
        return world._load(format, path, options)

    monkeypatch.setattr(registry, "load", load)
    plans = SLOWER, PLAIN, CHAIN
    outcome = world.run(*plans, fewest=2, most=2, finalists=2)
    assert outcome.failed == {"0": "no such device"}
    found = results(plans, outcome.turns)
    assert set(found) == {1, 2}
    assert found[1].speedup == 1.0
    assert found[1].turns == 6


# -- what is made of the turns -------------------------------------------------------------------


def turn(plan: int, text: int, tpot_s: float, repetition: int = 0, passes: int = 10) -> Turn:
    return Turn(plan, text, repetition, tpot_s, 10, passes)


def test_a_machine_that_drifts_harms_no_plan() -> None:
    """Both plans take twice as long in the second repetition, and three times in the third."""
    turns = [
        turn(plan, 0, seconds * drift, drift) for drift in (1, 2, 3)
        for plan, seconds in ((0, 0.02), (1, 0.01))
    ]  # fmt: skip
    assert results((PLAIN, CHAIN), turns)[1].speedup == pytest.approx(2.0)
    # The plan stops after the first repetition: medians of each plan's own times would say 4.
    stopped = [one for one in turns if one.plan == 0 or one.repetition == 1]
    assert results((PLAIN, CHAIN), stopped)[1].speedup == pytest.approx(2.0)


def test_speed_ups_are_over_the_fastest_plain_plan() -> None:
    turns = [turn(0, 0, 0.03), turn(1, 0, 0.02), turn(2, 0, 0.01)]
    found = results((SLOWER, PLAIN, CHAIN), turns)
    assert [found[plan].speedup for plan in range(3)] == pytest.approx([2 / 3, 1.0, 2.0])
    # The first plain plan failed in the second repetition, in which the other did not run.
    found = results((SLOWER, PLAIN, CHAIN), [*turns[1:], turn(2, 0, 0.01, repetition=1)])
    assert [found[plan].speedup for plan in (1, 2)] == pytest.approx([1.0, 2.0])


def test_a_text_of_one_round_does_not_count() -> None:
    turns = [turn(0, 0, 0.02), turn(1, 0, 0.01), turn(0, 1, 0.02), turn(1, 1, 0.0)]
    assert results((PLAIN, CHAIN), turns)[1].texts == pytest.approx((2.0,))
    assert results((PLAIN, CHAIN), turns[2:]) == {}


# -- the child -----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["failing_child", "no_such_module"])
def test_a_child_that_fails_is_one_line(module: str) -> None:
    with pytest.raises(ProfileError, match="plans could not be run: ") as caught:
        trial.run(TrialJob("x", None, (PLAIN,), PROMPTS, 4), module)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("after", "turns"), in_full([(0, 6), (1, 2)]))
def test_a_plan_that_ends_the_process_is_refused_and_the_others_are_measured(
    after: int, turns: int
) -> None:
    """In the first repetition the others run again; later what was measured is enough."""
    place = Place("onnx")
    plans = Plan(place), Plan(place, None, "lookup", 2), Plan(place, None, "lookup", 7)
    job = TrialJob(
        "demo", str(after), plans, ((1, 5), (5, 1)), 12, fewest=3, most=3, finalists=3,
    )  # fmt: skip
    outcome = trial.run(job, "crashing_trial")
    assert outcome.failed == {"2": "when it ran, it crashed with SIGSEGV: the driver gave up"}
    found = results(plans, outcome.turns)
    assert {plan: one.turns for plan, one in found.items()} == {0: turns, 1: turns}
    assert found[1].speedup == pytest.approx(2.0)


def test_without_a_second_plan_there_is_nothing_to_compare() -> None:
    place = Place("onnx")
    plans = Plan(place), Plan(place, None, "lookup", 7)
    outcome = trial.run(TrialJob("demo", "0", plans, ((1, 5),), 12), "crashing_trial")
    assert set(outcome.failed) == {"1"}
    assert {turn.plan for turn in outcome.turns} == {0}


def test_the_demo_runs_in_a_child() -> None:
    place = Place("onnx", threads=1)
    plans = (Plan(place), Plan(place, place, "model", 2))
    outcome = trial.run(TrialJob("demo", None, plans, ((1, 5, 7, 9),), 12))
    assert not outcome.failed
    assert set(results(plans, outcome.turns)) == {0, 1}
