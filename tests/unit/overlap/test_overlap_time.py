"""What overlapping gives, in virtual time: real scheduler, drafters and policies, no noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kinds import each_once
from overlapping import (
    DRAFT,
    SAMPLINGS,
    TARGET,
    VOCAB,
    Outcome,
    decode,
    overlapped_plan,
    plain,
    request,
)

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts, DraftStep
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import CostCurve, Fixed, MeasuredCost
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Session
from edgedec.hardware.clock import Clock
from edgedec.loading.engine import build_engine
from edgedec.overlap.engine import WaitLimit
from edgedec.overlap.lookahead_tree import DraftPassTimes, LookaheadNode, LookaheadTree
from edgedec.testing import FakeModel, PacedModel
from tests.virtual_time import VirtualClock

# The curve of a half-billion decoder in int4, in units of a pass over one row.
CURVE = CostCurve((1, 2, 3, 4, 5, 6, 8, 16), (1, 1.05, 1.24, 1.32, 1.5, 1.63, 1.98, 3.31))
TOKENS = 120
# Says the same again and again, and is sure of it.
REPEATING = FakeModel(VOCAB, context=1, sharpness=12.0)
GREEDY, HOT = SAMPLINGS["greedy"], SAMPLINGS["hot"]
Make = Callable[[Clock, Session, Session], Engine]


def timed(make: Make, share: float, sampling: SamplingParams = HOT) -> tuple[Outcome, Metrics]:
    """Of a draft whose pass over one row takes this share of the target's."""
    with VirtualClock() as clock:
        target = PacedModel(TARGET, lambda rows, context: CURVE.at(rows), clock)
        draft = PacedModel(DRAFT, lambda rows, context: share * (0.85 + 0.15 * rows), clock)
        engine, metrics = make(clock, target.open(400), draft.open(400)), Metrics()
        outcome = decode(engine, request(sampling, max_new_tokens=TOKENS), metrics)
        engine.drafter.close()
        return outcome, metrics


def overlapped(length: int | None, *, lookup: bool = False) -> Make:
    def make(clock: Clock, target: Session, draft: Session) -> Engine:
        plan = overlapped_plan("hybrid" if lookup else "model")
        policy = MeasuredCost(CURVE) if length is None else Fixed(length)
        return build_engine(plan, target, DrafterParts(VOCAB, draft), clock, policy=policy)

    return make


def sequential(length: int) -> Make:
    def make(clock: Clock, target: Session, draft: Session) -> Engine:
        drafter = drafting.create("model", DrafterParts(VOCAB, draft))
        return Engine(target, drafter, Fixed(length), acceptance.rule(), clock.now)

    return make


@pytest.mark.parametrize(("length", "sampling"), each_once([None, 3], [HOT, GREEDY]))
def test_a_draft_at_a_third_of_the_target_s_time_beats_every_fixed_length(
    sampling: SamplingParams, length: int | None
) -> None:
    outcome, metrics = timed(overlapped(length), 1 / 3, sampling)
    assert outcome == plain(sampling, max_new_tokens=TOKENS)
    best = min(timed(sequential(k), 1 / 3, sampling)[1].tpot_s for k in range(5))
    assert metrics.tpot_s < 0.9 * best
    # Nearly all of what the draft computes it computes beside the target.
    assert metrics.overlapped_s > 0.8 * metrics.ahead_s
    assert metrics.reuse_hits > 0


@pytest.mark.parametrize("share", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("lookup", [False, True])
def test_a_draft_that_is_too_slow_costs_nothing(share: float, lookup: bool) -> None:
    _, metrics = timed(overlapped(1, lookup=lookup), share)
    # A row more than plain decoding's, where something was there.
    assert metrics.tpot_s < 1.01 * CURVE.at(2) if lookup else metrics.tpot_s <= 1.001


@pytest.mark.full
def test_a_quick_draft_is_waited_for() -> None:
    """After a rejection a few draft passes cost less than a target pass for one token."""
    hot = [replace(HOT, seed=seed) for seed in range(8)]  # one text says little

    def seconds(make: Make) -> float:
        return sum(timed(make, 0.04, sampling)[1].tpot_s for sampling in hot)

    assert timed(overlapped(4), 0.04)[1].draft_s > 0
    assert seconds(overlapped(4)) < 1.02 * min(seconds(sequential(k)) for k in range(6))


def test_the_target_never_waits_for_a_draft_s_pass_to_end() -> None:
    """A pass of the draft takes three of the target's: plain decoding, to the microsecond."""
    _, metrics = timed(overlapped(3), 3.0)
    assert metrics.draft_s == 0
    assert metrics.tpot_s == pytest.approx(1.0)


def test_impatience_and_endless_patience_are_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    tpot = [timed(overlapped(4), share)[1].tpot_s for share in (0.04, 0.4)]
    monkeypatch.setattr(WaitLimit, "seconds", lambda self, depth: 0.0)
    assert timed(overlapped(4), 0.04)[1].tpot_s > 1.01 * tpot[0]
    monkeypatch.setattr(WaitLimit, "seconds", lambda self, depth: 100.0)
    assert timed(overlapped(4), 0.4)[1].tpot_s > 1.1 * tpot[1]


def test_a_row_more_is_worth_its_time() -> None:
    flat, steep = DraftPassTimes(), DraftPassTimes()
    assert not flat.known
    for rows in range(1, 9):
        flat.observe(rows, 1.0)
        steep.observe(rows, float(rows))
    assert flat.known
    assert all(flat.pays(rows, 0.01) for rows in range(1, 8))
    assert not any(steep.pays(rows, 0.9) for rows in range(1, 8))


@pytest.mark.parametrize("sampling", [GREEDY, HOT])
def test_a_tree_that_is_planted_anew_keeps_what_was_computed(
    sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[int] = []
    read: list[int] = []
    honest = LookaheadTree._rebuild

    def rebuild(self: LookaheadTree) -> None:
        rebuilt.append(len(self._tree))
        honest(self)

    def make(clock: Clock, target: Session, draft: Session) -> Engine:
        prefill = draft.prefill

        def watched(tokens: Sequence[int], *more: Any) -> None:
            read.append(len(tokens))
            prefill(tokens, *more)

        draft.prefill = watched  # type: ignore[method-assign]
        return overlapped(4)(clock, target, draft)

    monkeypatch.setattr(LookaheadTree, "_rebuild", rebuild)
    timed(make, 0.1, sampling)
    assert len(rebuilt) >= 3
    assert sum(read) == 0, "the prompt rides along, and so does what comes after it"


def test_a_draft_that_nobody_wants_rests_and_is_tried_again() -> None:
    class Reluctant(Fixed):
        """Wants nothing for so many rounds."""

        def __init__(self, rounds: int) -> None:
            super().__init__(3)
            self.rounds = rounds

        def go_on(self, step: DraftStep) -> bool:
            self.rounds -= step.nodes == 0
            return self.rounds < 0

    def wants_nothing_for(rounds: int) -> Metrics:
        def make(clock: Clock, target: Session, draft: Session) -> Engine:
            parts = DrafterParts(VOCAB, draft)
            return build_engine(overlapped_plan(), target, parts, clock, policy=Reluctant(rounds))

        return timed(make, 1 / 3)[1]

    busy, never, later = (wants_nothing_for(rounds) for rounds in (0, 1000, 30))
    assert busy.ahead_s > 0.9 * busy.target_s
    assert never.ahead_s < 0.5 * never.target_s
    assert later.accepted_tokens > 10


def test_what_lookup_and_the_draft_both_think_of_is_thought_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text that repeats itself, and a draft that knows it."""

    def rate() -> float:
        with VirtualClock() as clock:
            target = PacedModel(REPEATING, lambda rows, context: 1.0, clock)
            draft = PacedModel(REPEATING, lambda rows, context: 0.3, clock)
            engine = overlapped(4, lookup=True)(clock, target.open(400), draft.open(400))
            metrics = Metrics()
            decode(engine, request(GREEDY, max_new_tokens=TOKENS), metrics)
            engine.drafter.close()
            assert metrics.sources["lookup"] > 80
            return metrics.reuse_rate

    once = rate()
    monkeypatch.setattr(
        "edgedec.overlap.lookahead_tree._child", lambda *of: LookaheadNode(of[1], of[0], of[2])
    )
    twice = rate()
    assert once > 0.9
    assert twice < 0.5
