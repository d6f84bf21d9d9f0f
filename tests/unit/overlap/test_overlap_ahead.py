"""The draft's own thread in virtual time: when it computes, and what the scheduler hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from overlapping import DRAFT, PROMPT, VOCAB

from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, DraftStep
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Pass, Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError
from edgedec.overlap.engine import LookaheadDrafter
from edgedec.overlap.lookahead import Lookahead
from edgedec.testing import PacedModel
from tests.virtual_time import VirtualClock

PASS_S = 1.0


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with VirtualClock() as clock:
        yield clock


def sampler(prompt: list[int] = PROMPT) -> Sampler:
    return Sampler(SamplingParams(), VOCAB, prompt)


def paced(clock: VirtualClock) -> Session:
    """A draft session whose every pass takes a second."""
    return PacedModel(DRAFT, lambda rows, context: PASS_S, clock).open(200)


def ahead_of(clock: VirtualClock, session: Session) -> Lookahead:
    return Lookahead(DrafterParts(VOCAB, session), clock)


def during_pass(session: Session, number: int, act: Callable[[], None]) -> None:
    """Do something at the end of one of the session's passes, whatever interrupts it."""
    honest, passes = session.forward, iter(range(1000))

    def forward(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        mine = next(passes) == number
        try:
            return honest(tree, start, want)
        finally:
            if mine:
                act()

    session.forward = forward  # type: ignore[method-assign]


def fail() -> None:
    raise RuntimeError("a fault in the draft")


def test_the_end_of_a_pass_wakes_the_scheduler_at_once(clock: VirtualClock) -> None:
    ahead = ahead_of(clock, paced(clock))
    root = ahead.begin(sampler())
    for passes in (1, 2, 3):
        ahead.news.clear()
        assert ahead.news.wait(50 * PASS_S)
        assert clock.now() == pytest.approx(passes * PASS_S)
    assert root.computed
    ahead.close()


def test_a_failure_wakes_the_scheduler_at_once(clock: VirtualClock) -> None:
    session = paced(clock)
    during_pass(session, 0, fail)
    ahead = ahead_of(clock, session)
    root = ahead.begin(sampler())
    ahead.news.clear()
    while ahead.failure is None:
        assert ahead.news.wait(50 * PASS_S)
        ahead.news.clear()
    assert clock.now() == pytest.approx(PASS_S)
    assert not root.computed
    ahead.close()


def test_a_failure_between_passes_wakes_the_scheduler_too(clock: VirtualClock) -> None:
    session = paced(clock)
    ahead = ahead_of(clock, session)
    ahead.begin(sampler())
    clock.sleep(2.5 * PASS_S)
    session.rollback = lambda length: fail()  # type: ignore[method-assign]
    ahead.pause()
    clock.sleep(PASS_S)
    ahead.news.clear()
    ahead.begin(sampler([7, 7]))
    assert ahead.news.wait(50 * PASS_S)
    assert str(ahead.failure) == "a fault in the draft"
    assert clock.now() == pytest.approx(3.5 * PASS_S)
    ahead.close()


def test_nothing_is_computed_after_the_text_has_ended(clock: VirtualClock) -> None:
    ahead = ahead_of(clock, paced(clock))
    ahead.begin(sampler())
    clock.sleep(3.5 * PASS_S)
    before = ahead.busy_s
    ahead.end()
    clock.sleep(40 * PASS_S)
    assert before == pytest.approx(3.5 * PASS_S)
    assert ahead.busy_s <= before + PASS_S, "the pass that ran when the text ended, at most"
    ahead.begin(sampler())
    clock.sleep(3.5 * PASS_S)
    assert ahead.busy_s > before + 3 * PASS_S
    ahead.close()


def test_a_failure_of_the_last_text_that_comes_late_does_not_end_the_next_one(
    clock: VirtualClock,
) -> None:
    session = paced(clock)

    during_pass(session, 1, fail)
    ahead = ahead_of(clock, session)
    ahead.begin(sampler())
    clock.sleep(1.5 * PASS_S)  # in the second pass
    session.interrupt = lambda: None  # type: ignore[method-assign] # too late to stop it
    root = ahead.begin(sampler([*PROMPT, 7]))
    assert ahead.failure is None
    clock.sleep(5 * PASS_S)
    assert ahead.failure is None
    assert root.computed
    ahead.close()


def test_an_interrupted_pass_is_no_failure(clock: VirtualClock) -> None:
    session = paced(clock)
    ahead = ahead_of(clock, session)
    root = ahead.begin(sampler())
    clock.sleep(0.5 * PASS_S)
    session.interrupt()
    clock.sleep(3 * PASS_S)
    assert ahead.failure is None
    assert root.computed
    ahead.close()


@pytest.mark.parametrize("how", ["pause", "rest"])
def test_a_draft_that_is_held_begins_no_pass_until_it_is_let_go(
    clock: VirtualClock, how: str
) -> None:
    ahead = ahead_of(clock, paced(clock))
    ahead.begin(sampler())
    clock.sleep(2.5 * PASS_S)
    if how == "pause":
        ahead.pause()
    else:
        ahead.rest(now=True)
    clock.sleep(10 * PASS_S)
    assert ahead.busy_s == pytest.approx(3 * PASS_S)
    if how == "pause":
        ahead.resume()
    else:
        ahead.rest(now=False)
    clock.sleep(1.5 * PASS_S)
    assert ahead.busy_s == pytest.approx(4.5 * PASS_S)
    ahead.close()


def test_at_every_depth_the_figures_are_of_the_next_token(clock: VirtualClock) -> None:
    ahead = ahead_of(clock, paced(clock))
    drafter, mine = LookaheadDrafter(ahead, clock), sampler()
    drafter.begin(PROMPT, mine)
    clock.sleep(30 * PASS_S)
    seen: list[float] = []

    def look(step: DraftStep) -> bool:
        seen.append(step.offer.confidence())
        assert step.offer.token is not None
        assert step.offer.token() == DRAFT.logits([*PROMPT, *tokens]).argmax()
        tokens.append(step.offer.token())
        return True

    tokens: list[int] = []
    draft = drafter.propose(PROMPT[-1], DraftLimits(4, 4), look, mine.streams)
    assert draft.tree.tokens[1:] == tokens
    assert len(seen) == 4
    for depth, confidence in enumerate(seen):
        best = np.sort(DRAFT.logits([*PROMPT, *tokens[:depth]]).astype(float))[-8:]
        p = np.exp(best) / np.exp(best).sum()
        assert confidence == pytest.approx(p.max(), rel=1e-5)
    ahead.close()


def test_closing_closes_the_session(clock: VirtualClock) -> None:
    session = DRAFT.open(40)
    ahead = ahead_of(clock, session)
    ahead.begin(sampler())
    ahead.close()
    with pytest.raises(StateError, match="closed"):
        session.prefill([1])


@pytest.mark.parametrize("branches", [None, 1])
def test_what_somebody_else_thought_of_is_thought_on(
    clock: VirtualClock, branches: int | None
) -> None:
    ahead = Lookahead(DrafterParts(VOCAB, paced(clock), draft_branches=branches), clock)
    root = ahead.begin(sampler())
    clock.sleep(1.5 * PASS_S)
    least, next_to_least = np.argsort(DRAFT.logits(PROMPT))[:2].tolist()
    for token in (least, next_to_least):
        assert root.below(token) is None, "not what the draft itself would have thought of"
        ahead.add(root, [token, 5])
        clock.sleep(12 * PASS_S)
        below = root.below(token)
        assert below is not None
        assert below.computed
        assert below.below(5).computed  # type: ignore[union-attr]
    assert ahead.failure is None
    ahead.close()


@pytest.mark.parametrize("branches", [2, 3, 6])
def test_no_more_branches_are_pending_than_the_draft_computes(
    clock: VirtualClock, branches: int
) -> None:
    session, forks = paced(clock), []
    honest = session.forward

    def forward(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        forks.append(len(tree) - 1 - len(set(tree.parents[1:])))
        return honest(tree, start, want)

    session.forward = forward  # type: ignore[method-assign]
    ahead = Lookahead(DrafterParts(VOCAB, session, draft_branches=branches), clock)
    ahead.begin(sampler())
    clock.sleep(60 * PASS_S)
    assert max(forks) == branches - 1
    assert ahead.failure is None
    ahead.close()
