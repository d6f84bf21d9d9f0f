"""Overlapped drafting when something ends, fails or is interrupted: the next text is right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cross_vocabulary import permutation
from overlapping import (
    CLOCK,
    DRAFT,
    PROMPT,
    SAMPLINGS,
    TARGET,
    VOCAB,
    Harness,
    Slow,
    in_virtual_time,
    plain,
    request,
)
from running_threads import threads

from edgedec.decoding import acceptance
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Phase
from edgedec.decoding.translation import Translation
from edgedec.errors import InputError, RuntimeUnavailable, StateError
from edgedec.overlap.engine import OverlappedEngine
from edgedec.overlap.lookahead import Lookahead, Worker
from edgedec.testing import FakeModel, PacedModel
from tests.virtual_time import VirtualClock

HOT = SAMPLINGS["hot"]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = threads()
    yield
    left = threads() - before
    assert not left, f"left behind: {left}"


def check_usable(harness: Harness) -> None:
    """The next text is right, and drafted."""
    outcome, metrics = harness.run(HOT)
    assert outcome == plain(HOT)
    assert metrics.accepted_tokens > 0
    assert harness.ahead.failure is None


# -- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 11])
def test_a_limit_cuts_an_accepted_run(limit: int) -> None:
    with in_virtual_time(1e-3) as harness:
        outcome, metrics = harness.run(HOT, max_new_tokens=limit)
        assert outcome == plain(HOT, max_new_tokens=limit)
        assert metrics.emitted == limit
        assert harness.target.length == len(PROMPT) + limit - 1


def test_eos_and_stop_strings_inside_an_accepted_run() -> None:
    whole = plain(HOT)
    with in_virtual_time(3e-4) as harness:
        for eos in {event.token for event in whole.events}:
            outcome, _ = harness.run(HOT, eos_ids=(eos,))
            assert outcome == plain(HOT, eos_ids=(eos,))
            assert outcome.reason == "eos"
            assert harness.target.length == len(PROMPT) + len(outcome.events) - 1
        for start in range(0, 50, 7):
            stop = (whole.text[start : start + 3],)
            outcome, _ = harness.run(HOT, stop_strings=stop)
            assert outcome == plain(HOT, stop_strings=stop)
            assert outcome.reason == "stop"


def test_the_target_s_capacity_ends_the_text() -> None:
    with in_virtual_time(3e-4, capacity=90) as harness:
        outcome, _ = harness.run(HOT, max_new_tokens=1000)
    assert outcome == plain(HOT, capacity=90, max_new_tokens=1000)
    assert len(outcome.events) == 90 - len(PROMPT) + 1


@pytest.mark.parametrize("branches", [None, 1])
@pytest.mark.parametrize("capacity", [20, 40])
def test_beyond_the_draft_s_capacity_the_text_goes_on(branches: int | None, capacity: int) -> None:
    with in_virtual_time(5e-3, draft_capacity=capacity, branches=branches) as harness:
        outcome, metrics = harness.run(HOT, max_new_tokens=100)
        assert outcome == plain(HOT, max_new_tokens=100)
        # A session of 40 goes on with the beginning and the end of the text, one of 20 rests.
        assert (metrics.accepted_tokens < 20) == (capacity == 20)
        assert harness.ahead.failure is None


def test_a_prompt_of_one_token_and_one_that_the_draft_reads_for_long() -> None:
    with in_virtual_time(1e-3) as harness:
        for prompt in ([9], [1, 2, 3] * 100):
            assert harness.run(HOT, prompt)[0] == plain(HOT, prompt)


# -- the caller goes ------------------------------------------------------------------------------


def test_a_closed_stream_leaves_both_sessions_usable() -> None:
    with in_virtual_time(1e-3) as harness:
        for rounds in (0, 1, 4):
            running = harness.engine.run(request(HOT, [7, 7, 2]), Metrics())
            for _ in range(rounds):
                next(running)
            running.close()  # type: ignore[attr-defined]
            check_usable(harness)


def test_an_abandoned_stream_leaves_both_sessions_usable() -> None:
    with in_virtual_time(1e-3) as harness:
        running = harness.engine.run(request(HOT, [7, 7, 2]), Metrics())
        next(running)
        del running
        check_usable(harness)


def test_cancelled_and_out_of_time() -> None:
    with in_virtual_time(1e-3) as harness:
        asked = request(HOT)
        running = harness.engine.run(asked, Metrics())
        next(running)
        asked.cancelled.set()
        assert list(running) == []
        assert asked.stop.reason == "cancelled"
        check_usable(harness)
        asked = request(HOT, max_new_tokens=300)
        asked.deadline = harness.clock.now() + 0.01
        list(harness.engine.run(asked, Metrics()))
        assert asked.stop.reason == "timeout"
        check_usable(harness)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_exception_in_the_target_is_raised(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_virtual_time(1e-3) as harness:
        honest = harness.target.forward
        passes = iter(range(100))

        def forward(*arguments: Any, **more: Any) -> Any:
            if next(passes) == 3:
                raise error("in the target")
            return honest(*arguments, **more)

        with monkeypatch.context() as patched:
            patched.setattr(harness.target, "forward", forward)
            with pytest.raises(error, match="in the target"):
                harness.run(HOT)
        check_usable(harness)


def test_a_second_text_at_once_is_refused_and_disturbs_nothing() -> None:
    with in_virtual_time(1e-3) as harness:
        asked, metrics = request(HOT), Metrics()
        running = harness.engine.run(asked, metrics)
        block = next(running)
        with pytest.raises(StateError, match="another text"):
            harness.run(HOT)
        tokens = [event.token for event in block]
        tokens += [event.token for block in running for event in block]
        assert tokens == [event.token for event in plain(HOT).events]
        assert metrics.accepted_tokens > 0


# -- the draft fails ------------------------------------------------------------------------------


class Faulty(FakeModel):
    """Its sessions fail at the passes that ``fails`` says."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        self.__dict__.update(DRAFT.__dict__)
        self.passes, self._fails = 0, fails

    def logits(self, tokens: Any) -> Any:
        self.passes += 1
        if self._fails(self.passes):
            raise RuntimeError("a fault in the draft")
        return super().logits(tokens)


@pytest.mark.parametrize("lookup", [False, True])
def test_a_draft_that_fails_is_told_once_and_the_text_goes_on(lookup: bool) -> None:
    told: list[BaseException] = []
    draft = Faulty(lambda count: count == 7)
    with in_virtual_time(1e-3, draft=draft, lookup=lookup, on_failure=told.append) as harness:
        outcome, metrics = harness.run(HOT)
        assert outcome == plain(HOT)
        assert [str(error) for error in told] == ["a fault in the draft"]
        assert metrics.drafted_tokens < 60
        check_usable(harness)
        assert len(told) == 1


def test_a_draft_that_keeps_failing_leaves_plain_decoding(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "edgedec"),
        in_virtual_time(1e-3, draft=Faulty(lambda count: True)) as harness,
    ):
        for _ in range(2):
            outcome, metrics = harness.run(HOT)
            assert outcome == plain(HOT)
            assert metrics.drafted_tokens == 0
    assert [record.message for record in caplog.records] == [
        "the draft failed, going on without it: a fault in the draft"
    ] * 2


# -- interrupted passes ---------------------------------------------------------------------------


def test_a_pass_for_what_was_left_aside_is_interrupted() -> None:
    """A draft whose pass would take a minute does not hold up what comes after a correction."""
    clock, passes = VirtualClock(), list[bool]()

    def seconds(rows: int, context: int) -> float:
        passes.append(context > 30 and not any(passes))
        return 60.0 if passes[-1] else 1e-4

    target, draft = Slow(TARGET, 2e-3, clock=clock), PacedModel(DRAFT, seconds, clock)
    with Harness(target=target, draft=draft, clock=clock) as harness:
        outcome, _ = harness.run(HOT, max_new_tokens=100)
        assert outcome == plain(HOT, max_new_tokens=100)
        assert clock.now() < 100 * 2e-3
    # This one is of tokens that the text leaves aside.
    assert len(passes) > passes.index(True) + 20


def test_interruptions_from_anywhere_change_nothing() -> None:
    with in_virtual_time(1e-3) as harness:
        done: list[bool] = []

        def disturb() -> None:
            while not done:
                harness.draft.interrupt()
                harness.clock.sleep(5e-4)

        task = harness.clock.start(disturb, name="disturbs")
        outcome, metrics = harness.run(HOT, max_new_tokens=200)
        done.append(True)
        task.join()
        assert outcome == plain(HOT, max_new_tokens=200)
        assert metrics.accepted_tokens > 0
        assert harness.ahead.failure is None


# -- streamed targets -----------------------------------------------------------------------------


def test_a_draft_on_the_target_s_cores_computes_only_while_weights_load() -> None:
    clock = VirtualClock()
    target = PacedModel(TARGET, lambda rows, context: 4e-3, clock, load_s=4e-3)
    draft = Slow(DRAFT, 3e-3, clock=clock)
    begun: list[Phase | None] = []
    phase: list[Phase | None] = [None]
    with Harness(target=target, draft=draft, apart=False, clock=clock) as harness:
        watched, drafted = harness.target.watch, harness.draft.forward  # type: ignore[attr-defined]

        def watch(on_phase: Callable[[Phase], None] | None) -> None:
            def tell(now: Phase) -> None:
                assert on_phase is not None
                on_phase(now)
                phase[0] = now

            watched(on_phase and tell)

        def forward(*arguments: Any) -> Any:
            begun.append(phase[0])
            return drafted(*arguments)

        scored = harness.target.forward

        def score(*arguments: Any, **more: Any) -> Any:
            try:
                return scored(*arguments, **more)
            finally:
                phase[0] = None

        harness.target.watch = watch  # type: ignore[attr-defined]
        harness.target.forward = score  # type: ignore[method-assign]
        harness.draft.forward = forward  # type: ignore[method-assign]
        outcome, metrics = harness.run(HOT, max_new_tokens=40)
        assert outcome == plain(HOT, max_new_tokens=40)
        assert metrics.accepted_tokens > 0
    assert Phase.LOAD in begun
    assert Phase.COMPUTE not in begun


def test_a_draft_apart_need_not_care() -> None:
    clock = VirtualClock()
    target = PacedModel(TARGET, lambda rows, context: 2e-3, clock, load_s=0.0)
    with (
        clock,
        Harness(target=target, draft=Slow(DRAFT, 3e-4, clock=clock), clock=clock) as harness,
    ):
        outcome, metrics = harness.run(HOT, max_new_tokens=40)
        assert outcome == plain(HOT, max_new_tokens=40)
        assert metrics.overlapped_s > 0


# -- what is refused, and other vocabularies ------------------------------------------------------


@pytest.mark.parametrize("name", ["speculative", "bild"])
def test_rules_whose_text_depends_on_the_draft_are_refused(name: str) -> None:
    with Harness() as harness, pytest.raises(InputError, match=name):
        OverlappedEngine(harness.target, harness.drafter, Fixed(3), acceptance.rule(name), CLOCK)


def test_a_draft_that_drafts_by_text_is_refused() -> None:
    translation = Translation.of_ids(range(VOCAB), VOCAB)
    object.__setattr__(translation, "level", "string")
    with pytest.raises(InputError, match="share"):
        Lookahead(DrafterParts(VOCAB, DRAFT.open(8), translation=translation), CLOCK)
    with pytest.raises(InputError, match="needs a draft model"):
        Lookahead(DrafterParts(VOCAB), CLOCK)


def test_a_draft_with_another_vocabulary() -> None:
    translation = permutation(VOCAB)

    class Permuted(FakeModel):
        def logits(self, tokens: Any) -> Any:
            row = DRAFT.logits(translation.to_target[list(tokens)].tolist())
            return row[translation.to_target]

    for sampling in (SamplingParams(), HOT):
        with in_virtual_time(8e-3, draft=Permuted(VOCAB), translation=translation) as harness:
            outcome, metrics = harness.run(sampling)
            assert outcome == plain(sampling)
            assert harness.ahead.failure is None
            assert metrics.acceptance_rate > 0.3


def test_cores_that_are_not_there_are_refused_at_once() -> None:
    with pytest.raises(RuntimeUnavailable):
        Worker(CLOCK, "draft", lambda: False, lambda error: None, cores=(9999,))
