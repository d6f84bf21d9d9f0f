"""Threads that share a pipeline: their texts wait in a queue, and end in every way there is."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import queued_texts
import test_pipeline
import test_turns
from queued_texts import OPTIONS, PROMPT, Held, tell_nobody, waiting
from waiting import LIMIT_S, Apart, until

from edgedec import Pipeline
from edgedec.errors import StateError
from edgedec.generation import queue
from edgedec.generation.queue import Line, Ticket
from edgedec.generation.stream import Stream
from edgedec.runtimes.onnx.session import OnnxSession

bundle, alone = test_pipeline.bundle, test_turns.alone
pipeline, one, held = queued_texts.pipeline, queued_texts.one, queued_texts.held


def test_texts_of_many_threads_are_those_of_texts_alone(
    pipeline: Pipeline, alone: list[list[int]]
) -> None:
    prompts = test_turns.prompts()

    def generate(place: int) -> list[int]:
        return pipeline.generate(prompts[place], test_turns.options(place)).token_ids

    threads = [Apart(lambda place=place: generate(place)) for place in range(6)]
    assert [thread.result() for thread in threads] == alone
    assert len(pipeline._queue.places) == len(pipeline._queue.rounds) == 0


def most_passes(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> int:
    """Most passes at the same time of three threads that decode; each waits for another."""
    honest, left = OnnxSession.forward, [3]
    inside: list[int] = []
    most = [0]

    def forward(session: OnnxSession, *args: Any, **named: Any) -> Any:
        inside.append(1)
        most[0] = max(most[0], len(inside))
        rounds = pipeline._queue.rounds
        until(lambda: len(inside) > 1 or len(rounds) > rounds.count or left[0] == 1)
        inside.pop()
        return honest(session, *args, **named)

    def generate(prompt: list[int]) -> None:
        try:
            pipeline.generate(prompt, OPTIONS, max_new_tokens=8)
        finally:
            left[0] -= 1

    with monkeypatch.context() as patch:
        patch.setattr(OnnxSession, "forward", forward)
        threads = [Apart(lambda n=n: generate([*PROMPT, n])) for n in range(3)]
        until(lambda: not any(thread.running for thread in threads))
    return most[0]


def test_passes_of_texts_in_turns_never_overlap(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=3) as pipeline:
        assert most_passes(pipeline, monkeypatch) == 1


def test_passes_that_overlap_are_noticed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: everybody has a turn at once."""
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=3) as pipeline:
        pipeline._queue.rounds = Line(3)
        assert most_passes(pipeline, monkeypatch) > 1


def begun_in_order(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[int] | None:
    """In which order texts of threads that came one by one began; None if one never did."""
    order: list[int] = []
    first = pipeline.stream(PROMPT, OPTIONS)
    next(first)
    honest = Pipeline._decoded

    def decoded(self: Pipeline, request: Any, *rest: Any) -> Any:
        order.append(request.prompt[-1])
        return honest(self, request, *rest)

    leave, leaves = Line.leave, [0, 0]  # begun, done

    def left(line: Line, ticket: Ticket) -> None:
        leaves[0] += 1
        leave(line, ticket)
        leaves[1] += 1

    monkeypatch.setattr(Line, "leave", left)
    monkeypatch.setattr(Pipeline, "_decoded", decoded)
    threads = []
    for number in range(5):
        threads.append(Apart(lambda n=number: pipeline.generate([5, 6, n], OPTIONS)))
        until(lambda number=number: waiting(pipeline) == number + 1)
    first.close()
    line = pipeline._queue.places

    def stranded() -> bool:
        begun, done = leaves
        tickets = list(line.tickets)[: line.count]
        lost = any(not ticket.called for ticket in tickets)
        return lost and begun == done == leaves[0]  # nobody was about to tell

    until(lambda: not any(thread.running for thread in threads) or stranded())
    lost = stranded()
    pipeline.close()
    for thread in threads:
        until(lambda thread=thread: not thread.running)
    return None if lost else order


def test_threads_are_served_in_the_order_in_which_they_came(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun_in_order(one, monkeypatch) == [0, 1, 2, 3, 4]


def test_a_queue_that_loses_one_is_noticed(one: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: who leaves tells nobody."""

    monkeypatch.setattr(Line, "leave", tell_nobody)
    assert begun_in_order(one, monkeypatch) is None


class TestWithoutWaiting:
    @pytest.mark.parametrize("call", ["generate", "stream"])
    def test_a_text_that_would_wait_is_refused(self, one: Pipeline, held: Held, call: str) -> None:
        other = Apart(lambda: one.generate(PROMPT, OPTIONS))
        assert held.inside.wait(LIMIT_S)
        ask: Callable[..., Any] = getattr(one, call)
        with pytest.raises(StateError, match="another text is being decoded: read its stream"):
            list(ask([5, 6], OPTIONS, wait=False))
        assert waiting(one) == 0
        held.go_on.set()
        assert len(other.result().token_ids) == 24
        assert one.generate([5, 6], OPTIONS, wait=False).token_ids

    def test_a_thread_never_waits_for_its_own_stream(self, one: Pipeline) -> None:
        first = one.stream(PROMPT, OPTIONS)
        next(first)
        with pytest.raises(StateError, match="another text is being decoded"):
            one.generate([5, 6], OPTIONS)
        assert len(list(first)) == 23

    def test_a_stream_that_another_thread_took_over_is_waited_for(
        self, one: Pipeline, held: Held
    ) -> None:
        stream = one.stream(PROMPT, OPTIONS)
        held.go_on.set()
        next(stream)
        held.go_on.clear()
        held.inside.clear()
        other = Apart(lambda: list(stream))
        assert held.inside.wait(LIMIT_S)
        mine = Apart(lambda: (until(lambda: waiting(one) == 1), held.go_on.set()))
        assert one.generate([5, 6], OPTIONS).token_ids
        mine.result()
        assert len(other.result()) == 23


class TestTextsThatEndWhileTheyWait:
    """One text is in its first pass; another waits, and ends before its turn."""

    @pytest.fixture
    def first(self, one: Pipeline, held: Held) -> Apart:
        found = Apart(lambda: one.generate(PROMPT, OPTIONS))
        assert held.inside.wait(LIMIT_S)
        return found

    @pytest.fixture
    def goes_on(self, one: Pipeline, held: Held, first: Apart) -> Callable[[], None]:
        """Both the text that was decoded and the next one are whole."""

        def check() -> None:
            assert not held.go_on.is_set()
            until(lambda: waiting(one) == 0)
            held.go_on.set()
            assert len(first.result().token_ids) == 24
            assert len(one.generate([5, 6], OPTIONS).token_ids) == 24

        return check

    @pytest.mark.parametrize("ends", [Stream.cancel, Stream.close])
    def test_cancelled_or_closed(
        self, one: Pipeline, goes_on: Callable[[], None], ends: Callable[[Stream], None]
    ) -> None:
        stream = one.stream([7, 8], OPTIONS)
        reader = Apart(lambda: list(stream))
        until(lambda: waiting(one) == 1)
        ends(stream)
        assert reader.result() == []
        if ends is Stream.close:
            assert stream.result is None
        else:
            assert stream.result is not None
            assert (stream.result.finish_reason, stream.result.text) == ("cancelled", "")
        goes_on()

    def test_out_of_time(self, one: Pipeline, goes_on: Callable[[], None]) -> None:
        found = one.generate([7, 8], OPTIONS, timeout=1e-9)
        assert (found.finish_reason, found.text) == ("timeout", "")
        goes_on()

    def test_a_text_that_has_time_waits(
        self, one: Pipeline, held: Held, first: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The clock that decides is the one of the deadline."""
        monkeypatch.setattr(queue, "perf_counter", lambda: 0.0)
        second = Apart(lambda: one.generate([7, 8], OPTIONS, timeout=LIMIT_S))
        until(lambda: waiting(one) == 1)
        held.go_on.set()
        assert len(second.result().token_ids) == 24
        first.result()

    def test_interrupted(
        self, one: Pipeline, goes_on: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wait(ticket: Ticket, seconds: float | None = None) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Ticket, "wait", wait)
            with pytest.raises(KeyboardInterrupt):
                one.generate([7, 8], OPTIONS)
        goes_on()


def raised(error: type[BaseException]) -> Any:
    raise error


@pytest.mark.parametrize("end", ["close", "collect", "fail", "interrupt"])
def test_a_text_that_ends_early_lets_the_next_one_in(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    stream = one.stream(PROMPT, OPTIONS)
    next(stream)
    waits = Apart(lambda: one.generate([5, 6], OPTIONS))
    until(lambda: waiting(one) == 1)
    if end == "close":
        stream.close()
    elif end == "collect":
        del stream
        gc.collect()
    else:
        error = ValueError if end == "fail" else KeyboardInterrupt
        with monkeypatch.context() as patch:
            patch.setattr(OnnxSession, "forward", lambda *args, **named: raised(error))
            with pytest.raises(error):
                next(stream)
    assert len(waits.result().token_ids) == 24


def test_what_needs_a_pipeline_at_rest_is_refused_meanwhile(
    one: Pipeline, held: Held, tmp_path: Path
) -> None:
    stream = one.stream(PROMPT, OPTIONS)
    held.go_on.set()
    next(stream)
    with pytest.raises(StateError, match="another text is being decoded"):
        one.save(tmp_path / "text")
    list(stream)
    one.save(tmp_path / "text")
