"""What a round takes beyond its passes, from real texts and their replay."""

from dataclasses import replace
from time import sleep
from typing import Any

import pytest

from edgedec.decoding.session import Session
from edgedec.errors import ProfileError
from edgedec.profiling.drafter_overheads import (
    OpenPair,
    _overhead,
    _Round,
    _round,
    drafter_overheads,
)
from edgedec.profiling.rounds import TimedPass
from edgedec.profiling.traces import TraceRecorder
from edgedec.records.plan import Plan
from edgedec.records.profile import SCHEMA, Measured, PassTimes, Profile
from edgedec.records.soundness import check
from edgedec.replay.run import ReplaySetting, replay
from edgedec.testing import FakeModel
from tests.simulated import OTHER, PLACE, VOCAB, measured, trace

PASS_S, LOOP_S = 3e-3, 6e-3
TARGET = FakeModel(VOCAB, seed=1)
DRAFT = FakeModel(VOCAB, seed=2, like=(TARGET, 0.8))


class Slow:
    """A session whose passes take a while, and more so what is done between them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, *args: Any, **more: Any) -> Any:
        sleep(PASS_S)
        return self._session.forward(*args, **more)

    def commit(self, *args: Any, **more: Any) -> Any:
        sleep(LOOP_S)
        return self._session.commit(*args, **more)


def at(role: str, seconds: float, **changes: Any) -> Measured:
    times = tuple(PassTimes(c, (1, 16), (seconds, seconds), (0.0, 0.0)) for c in (8, 400))
    return measured(role, times=times, prefill_s=1e-9, **changes)


@pytest.fixture
def stage() -> OpenPair:
    target, draft = TARGET.open(400), DRAFT.open(400)
    return OpenPair(
        model=TARGET,
        target=Slow(target),  # type: ignore[arg-type]
        draft=draft,
        translation=None,
        measured=(at("target", 1e-9), at("draft", 1e-9, place=OTHER)),
        draft_overhead_s=0.0,
    )


@pytest.fixture(scope="module")
def texts() -> list[Any]:
    recorder = TraceRecorder(TARGET.open(400), DRAFT.open(400), VOCAB, ())
    return [recorder.record("a", [1, 2, 3], 0.0, 24), recorder.record("b", [4, 5], 0.8, 24)]


def test_every_kind_of_round_is_found_with_what_its_passes_do_not_explain(stage, texts):
    found = drafter_overheads(stage, texts)
    names = ("lookup", "recycle", "model", "tree", "hybrid", "adaptive")
    # The fake model is batch-invariant: nobody branches.
    kinds = {"none", *(f"{n}{how}" for n in names for how in ("", " auto"))}
    assert set(found) <= kinds
    assert {"none", "lookup", "model auto", "hybrid"} <= set(found)
    # The loop, and passes that the profile does not explain: there are one or more in a round.
    assert min(found.values()) >= LOOP_S + PASS_S
    # Quicker passes than the profile's take nothing from the loop.
    whole = replace(stage, measured=(at("target", 1.0), at("draft", 1.0, place=OTHER)))
    assert min(drafter_overheads(whole, texts).values()) >= LOOP_S


@pytest.mark.parametrize(
    ("outside", "longer", "charged", "expected"),
    [
        (1e-4, 0.0, 0.0, 1e-4),
        (1e-4, 5e-5, 0.0, 1.5e-4),
        (1e-4, 5e-3, 0.0, 3e-4),  # a machine that drifted between profile and text
        (1e-4, -5e-3, 0.0, 1e-4),
        (1e-4, 0.0, 4e-5, 6e-5),
        (1e-4, 0.0, 2e-4, 0.0),
    ],
)
def test_passes_cost_more_by_the_work_between_them_at_most(outside, longer, charged, expected):
    rounds = [_Round(outside, longer, charged), _Round(9.0, 9.0, charged)]
    rounds.append(_Round(0.0, -9.0, charged))
    assert _overhead(rounds) == pytest.approx(expected)


def test_a_pass_is_compared_with_its_rows_at_its_context(stage):
    steep = PassTimes(8, (1, 9), (1e-3, 9e-3), (0.0, 0.0))
    slow = replace(stage, measured=(measured("target", times=(steep,)), at("draft", 2e-3)))
    drafted = [TimedPass(1, True, 9, 5e-3)] * 2 + [TimedPass(10, False, 9, 1e-3)]
    found = _round(
        replace(slow, draft_overhead_s=1e-5), 0.5, [[TimedPass(5, True, 8, 7e-3)], drafted]
    )
    # Read, not scored: by the seconds a token of a prompt takes, here next to nothing.
    assert found == pytest.approx((0.5, 2e-3 + 2 * 3e-3 + 1e-3, 2e-5), abs=1e-7)


def test_without_a_draft_or_a_greedy_text_or_a_way_back(stage, texts):
    alone = replace(stage, draft=None, measured=(stage.measured[0], None))
    assert not any(kind.startswith(("model", "hybrid")) for kind in drafter_overheads(alone, texts))
    assert drafter_overheads(stage, texts[1:]) == {}
    recurrent = replace(stage.measured[0], rolls_back=False)
    assert drafter_overheads(replace(stage, measured=(recurrent, None)), texts) == {}


@pytest.mark.parametrize("plan", [Plan(PLACE), Plan(PLACE, None, "lookup", 3)])
def test_a_replay_charges_each_round_with_it(plan):
    text = trace(count=40)
    bare = ReplaySetting(at("target", 8e-3))
    (before,) = replay(bare, plan, [text], 40)
    (after,) = replay(replace(bare, rounds={plan.kind: 2e-3}), plan, [text], 40)
    assert after.target_passes == before.target_passes
    added = after.decode_s - before.decode_s
    assert added == pytest.approx(2e-3 * (before.target_passes - 1))
    # Of another kind it is not charged.
    (other,) = replay(replace(bare, rounds={"tree auto": 2e-3}), plan, [text], 40)
    assert other.decode_s == before.decode_s


def test_no_stored_figure_of_it_is_negative():
    profile = Profile(SCHEMA, {}, "", {}, (measured(),), (), (), 0.0, rounds={"none": -1e-6})
    with pytest.raises(ProfileError, match="rounds"):
        check(profile)
