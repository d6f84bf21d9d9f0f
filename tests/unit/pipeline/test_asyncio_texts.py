"""Texts of asyncio's tasks: queued and in turns, cancelled at any point, and nobody is lost."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import test_pipeline
import test_queued_threads
import test_turns
from waiting import LIMIT_S, Apart, until

from edgedec import Generation, Pipeline
from edgedec.errors import InputError, PassFailed, PromptTooLong, StateError
from edgedec.generation.asynchronous import AsyncStream
from edgedec.generation.queue import Line, Place, Ticket
from edgedec.generation.stream import Stream
from edgedec.runtimes.onnx.session import OnnxSession

bundle, alone, held = test_pipeline.bundle, test_turns.alone, test_queued_threads.held
one, pipeline = test_queued_threads.one, test_queued_threads.pipeline
PROMPT, LONG, OPTIONS = test_pipeline.PROMPT, test_pipeline.LONG, test_pipeline.OPTIONS
Held, waiting = test_queued_threads.Held, test_queued_threads.waiting
TASKS = 20


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a program; one that stops for good fails."""
    return asyncio.run(asyncio.wait_for(main, LIMIT_S))


async def soon(holds: Any) -> None:
    """Let other tasks run until a condition holds."""
    while not holds():
        await asyncio.sleep(0)


def at_rest(pipeline: Pipeline) -> bool:
    return len(pipeline._queue.places) == len(pipeline._queue.rounds) == 0


def prompt_of(number: int) -> list[int]:
    return [*PROMPT, number]


@pytest.fixture(scope="module")
def expected(bundle: Path) -> list[list[int]]:
    """The texts of all tasks, decoded plainly one after another."""
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        return [pipeline.generate(prompt_of(n), OPTIONS).token_ids for n in range(TASKS)]


def test_20_tasks_get_the_texts_that_they_would_get_alone(
    pipeline: Pipeline, expected: list[list[int]]
) -> None:
    async def main() -> list[Generation]:
        texts = (pipeline.agenerate(prompt_of(n), OPTIONS) for n in range(TASKS))
        return list(await asyncio.gather(*texts))

    assert [found.token_ids for found in run(main())] == expected
    assert at_rest(pipeline)


def test_events_come_as_they_are_decoded(one: Pipeline, expected: list[list[int]]) -> None:
    async def main() -> tuple[list[int], AsyncStream]:
        stream = one.astream(prompt_of(3), OPTIONS)
        assert stream.metrics is None
        found = [event.token async for event in stream]
        return found, stream

    tokens, stream = run(main())
    assert tokens == expected[3]
    assert stream.result is not None
    assert stream.result.token_ids == tokens
    assert stream.metrics is stream.result.metrics


def test_the_loop_goes_on_during_a_pass(one: Pipeline, held: Held) -> None:
    """The pass ends when the loop says so: a loop that waited for it would wait forever."""

    async def main() -> int:
        task = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
        await soon(held.inside.is_set)
        held.go_on.set()
        return len((await task).token_ids)

    assert run(main()) == 24


def order_of_rounds(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> list[tuple[int, bool]]:
    """The last token of the prompt for each round, and whether the text ended with it."""
    order: list[tuple[int, bool]] = []
    honest = Stream.turn
    begun = threading.Semaphore(0)

    def turn(stream: Stream) -> Any:
        if not order:  # until as many have come as have a place
            begun.acquire(timeout=LIMIT_S)
        events = honest(stream)
        order.append((stream._request.prompt[-1], events is None))
        return events

    monkeypatch.setattr(Stream, "turn", turn)

    async def main() -> None:
        texts = [pipeline.agenerate(prompt_of(n), OPTIONS) for n in range(tasks)]
        running = [asyncio.ensure_future(text) for text in texts]
        places = min(tasks, pipeline._queue.places._count)
        await soon(lambda: submitted[0] >= places)
        begun.release()
        await asyncio.gather(*running)

    submitted, submit = [0], pipeline._queue.submit

    def counted(job: Any) -> None:
        submit(job)
        submitted[0] += 1

    monkeypatch.setattr(pipeline._queue, "submit", counted)
    run(main())
    return order


def test_texts_take_turns(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=3) as pipeline:
        order = [name for name, _ in order_of_rounds(pipeline, monkeypatch, 3)]
        assert sorted(set(order)) == [0, 1, 2]
        assert all(set(order[at : at + 3]) == {0, 1, 2} for at in range(0, len(order), 3))


def test_texts_begin_in_the_order_in_which_their_tasks_came(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = [name for name, ended in order_of_rounds(one, monkeypatch, 8) if ended]
    assert order == list(range(8))


class TestCancelledTasks:
    @pytest.mark.parametrize("seed", range(4))
    def test_any_of_them_at_any_point(
        self, pipeline: Pipeline, expected: list[list[int]], seed: int
    ) -> None:
        chance = random.Random(seed)

        async def one_task(number: int) -> list[int]:
            if number % 2:
                return (await pipeline.agenerate(prompt_of(number), OPTIONS)).token_ids
            return [event.token async for event in pipeline.astream(prompt_of(number), OPTIONS)]

        async def main() -> list[Any]:
            tasks = [asyncio.create_task(one_task(number)) for number in range(TASKS)]
            for task in chance.sample(tasks, TASKS // 2):
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

        found = run(main())
        gc.collect()
        until(lambda: at_rest(pipeline))
        for number, text in enumerate(found):
            assert text == expected[number] or isinstance(text, asyncio.CancelledError)
        assert sum(isinstance(text, list) for text in found) >= TASKS // 2
        assert pipeline.generate(prompt_of(0), OPTIONS).token_ids == expected[0]

    def test_one_that_waits_for_its_place(self, one: Pipeline, held: Held) -> None:
        async def main() -> int:
            first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
            await soon(held.inside.is_set)
            second = asyncio.create_task(one.agenerate([5, 6], OPTIONS))
            third = asyncio.create_task(one.agenerate([7, 8], OPTIONS))
            await soon(lambda: waiting(one) == 2)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert waiting(one) == 1
            held.go_on.set()
            return len((await first).token_ids) + len((await third).token_ids)

        assert run(main()) == 48
        assert at_rest(one)

    def test_one_in_the_middle_of_a_pass_ends_after_it(self, one: Pipeline, held: Held) -> None:
        async def main() -> None:
            first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
            await soon(held.inside.is_set)
            first.cancel()
            await asyncio.sleep(0)
            assert not first.done(), "its pass goes on"
            held.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert at_rest(one)

        run(main())
        assert len(one.generate([5, 6], OPTIONS).token_ids) == 24

    def test_one_whose_prompt_is_being_read_ends_at_the_next_chunk(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(OnnxSession, "prefill_chunk", 50)
        inside, go_on, chunks = threading.Event(), threading.Event(), [0]
        honest = OnnxSession.prefill

        def prefill(session: OnnxSession, tokens: Any, on_chunk: Any = None) -> None:
            def counted(done: int, total: int) -> None:
                chunks[0] += 1
                inside.set()
                assert go_on.wait(LIMIT_S)
                on_chunk(done, total)

            honest(session, tokens, counted if on_chunk else None)

        monkeypatch.setattr(OnnxSession, "prefill", prefill)

        async def main() -> None:
            task = asyncio.create_task(one.agenerate(LONG, OPTIONS))
            await soon(inside.is_set)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(main())
        assert chunks == [1]
        assert at_rest(one)

    def test_one_that_keeps_its_place_is_noticed(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Broken twin: a text that was left stays in the line."""

        async def main() -> None:
            task = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
            await soon(lambda: not at_rest(one))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        monkeypatch.setattr(Place, "leave", lambda place: None)
        run(main())
        assert not at_rest(one)


def test_a_queue_that_loses_a_task_is_noticed(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: who leaves tells nobody. The other tasks wait for good."""

    def leave(line: Line, ticket: Ticket) -> None:
        line._tickets.pop(ticket, None)

    async def main() -> int:
        tasks = [asyncio.create_task(one.agenerate(prompt_of(n), OPTIONS)) for n in range(3)]
        await tasks[0]
        line = one._queue.places
        await soon(lambda: len(line) == 2)
        told = [ticket._once.locked() for ticket in line._tickets]
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(told)

    monkeypatch.setattr(Line, "leave", leave)
    assert run(main()) == 0


class TestReadersWhoLeave:
    async def left(self, stream: AsyncStream, how: str) -> None:
        if how == "close":
            await anext(stream)
            await stream.aclose()
        elif how == "block":
            async with stream:
                await anext(stream)
        elif how == "break":
            async for _ in stream:
                break
        else:
            await anext(stream)
            stream.cancel()

    @pytest.mark.parametrize("how", ["close", "block", "break", "cancel"])
    def test_the_place_is_free_for_the_next_text(self, one: Pipeline, how: str) -> None:
        async def main() -> Generation | None:
            stream = one.astream(LONG[:40], OPTIONS, max_new_tokens=400)
            await self.left(stream, how)
            assert len((await one.agenerate(PROMPT, OPTIONS)).token_ids) == 24
            rest = [event async for event in stream]
            if how == "cancel":
                assert stream.result is not None
                assert stream.result.finish_reason == "cancelled"
                assert len(stream.result.events) == 1 + len(rest)
            elif how != "break":
                assert rest == []
                assert stream.result is None

        run(main())
        assert at_rest(one)

    def test_a_stream_that_nobody_has_any_more_ends(self, one: Pipeline) -> None:
        async def main() -> int:
            stream = one.astream(LONG[:40], OPTIONS, max_new_tokens=900)
            await anext(stream)
            metrics = stream.metrics
            del stream
            gc.collect()
            await soon(lambda: at_rest(one))
            assert metrics is not None
            return metrics.emitted

        assert run(main()) < 900

    def test_one_that_was_never_read_takes_nothing(self, one: Pipeline) -> None:
        async def main() -> None:
            stream = one.astream(PROMPT, OPTIONS)
            assert at_rest(one)
            await stream.aclose()
            assert [event async for event in stream] == []

        run(main())

    def test_a_slow_reader_keeps_nobody_waiting(self, one: Pipeline) -> None:
        """Not even the same task, in the body of its loop."""

        async def main() -> tuple[int, int]:
            read = 0
            async for _ in one.astream(PROMPT, OPTIONS):
                read += 1
                inner = await one.agenerate([5, 6, read], OPTIONS)
                assert len(inner.token_ids) == 24
                if read == 3:
                    break
            return read, len(inner.token_ids)

        assert run(main()) == (3, 24)

    def test_a_loop_that_was_closed_leaves_nothing_behind(self, one: Pipeline, held: Held) -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(one.agenerate(PROMPT, OPTIONS))
        while not held.inside.is_set():
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        held.go_on.set()
        until(lambda: at_rest(one))
        assert len(one.generate([5, 6], OPTIONS).token_ids) == 24
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task
        gc.collect()


class TestErrors:
    @pytest.mark.parametrize(
        ("prompt", "error"),
        [(LONG * 2, PromptTooLong), ([], InputError), ([10_000], InputError), (None, InputError)],
    )
    def test_of_a_request_are_raised_by_the_first_event(
        self, one: Pipeline, prompt: Any, error: type[Exception]
    ) -> None:
        async def main() -> None:
            stream = one.astream(prompt)
            with pytest.raises(error):
                await anext(stream)
            assert [event async for event in stream] == []
            with pytest.raises(error):
                await one.agenerate(prompt)
            assert at_rest(one)
            assert len((await one.agenerate(PROMPT, OPTIONS)).token_ids) == 24

        run(main())

    def test_a_wrong_name_is_refused_at_once(self, one: Pipeline) -> None:
        with pytest.raises(TypeError, match="unknown option 'max_tokens'"):
            one.astream(PROMPT, max_tokens=3)  # type: ignore[call-arg]

    def test_of_a_pass_are_raised_and_the_next_text_goes_on(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def main() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(OnnxSession, "forward", failing)
                with pytest.raises(ZeroDivisionError):
                    await one.agenerate(PROMPT, OPTIONS)
            assert len((await one.agenerate(PROMPT, OPTIONS)).token_ids) == 24

        def failing(*args: Any, **named: Any) -> Any:
            return 1 // 0

        run(main())

    def test_a_text_that_would_wait_is_refused(self, one: Pipeline, held: Held) -> None:
        async def main() -> None:
            first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
            await soon(held.inside.is_set)
            with pytest.raises(StateError, match="another text is being decoded"):
                await one.agenerate([5, 6], OPTIONS, wait=False)
            assert waiting(one) == 0
            held.go_on.set()
            await first
            await one.agenerate([5, 6], OPTIONS, wait=False)

        run(main())

    def test_a_text_is_out_of_time_while_it_waits(self, one: Pipeline, held: Held) -> None:
        async def main() -> None:
            first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
            await soon(held.inside.is_set)
            found = asyncio.create_task(one.agenerate([5, 6], OPTIONS, timeout=1e-9))
            await soon(lambda: waiting(one) == 1)
            await asyncio.sleep(0)
            held.go_on.set()
            late = await found
            assert (late.finish_reason, late.text) == ("timeout", "")
            await first

        run(main())

    def test_a_stream_of_the_loop_s_own_thread_is_not_waited_for(self, one: Pipeline) -> None:
        async def main() -> None:
            mine = one.stream(PROMPT, OPTIONS)
            next(mine)
            with pytest.raises(StateError, match="another text is being decoded"):
                await one.agenerate([5, 6], OPTIONS)
            mine.close()
            await one.agenerate([5, 6], OPTIONS)

        run(main())

    def test_a_device_that_fails_moves_every_text(
        self, bundle: Path, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        honest, passes = OnnxSession._score, iter(range(10**9))

        def fails_once(self: OnnxSession, *arguments: Any) -> Any:
            if next(passes) == 12:
                raise PassFailed("gone")
            return honest(self, *arguments)

        async def main(pipeline: Pipeline) -> list[list[int]]:
            texts = [
                pipeline.agenerate(prompt, test_turns.options(place))
                for place, prompt in enumerate(test_turns.prompts())
            ]
            return [found.token_ids for found in await asyncio.gather(*texts)]

        with Pipeline.open(bundle, drafter="lookup", threads=1, parallel=3) as pipeline:
            monkeypatch.setattr(OnnxSession, "_score", fails_once)
            assert run(main(pipeline)) == alone
            assert len(pipeline.notes) == 1


def test_closing_ends_all_texts(one: Pipeline, held: Held) -> None:
    async def main() -> list[Any]:
        tasks = [asyncio.create_task(one.agenerate(prompt_of(n), OPTIONS)) for n in range(4)]
        await soon(lambda: held.inside.is_set() and waiting(one) == 3)
        closes = Apart(one.close)
        await soon(lambda: one._queue.closed)
        held.go_on.set()
        await soon(lambda: not closes.running)
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run(main())
    assert all(isinstance(error, StateError) for error in found)
    assert {str(error) for error in found} == {"the pipeline is closed: open a new one"}
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("edgedec-async") for name in names)


def test_programs_without_asyncio_do_not_import_it() -> None:
    code = "import sys, edgedec.pipeline; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_and_loops_share_a_pipeline(pipeline: Pipeline, expected: list[list[int]]) -> None:
    async def some(numbers: range) -> list[list[int]]:
        texts = (pipeline.agenerate(prompt_of(n), OPTIONS) for n in numbers)
        return [found.token_ids for found in await asyncio.gather(*texts)]

    loops = [Apart(lambda n=n: run(some(range(n, 12, 3)))) for n in range(3)]
    threads = [
        Apart(lambda n=n: pipeline.generate(prompt_of(n), OPTIONS).token_ids) for n in range(12, 16)
    ]
    for n, loop in enumerate(loops):
        assert loop.result() == expected[n:12:3]
    assert [thread.result() for thread in threads] == expected[12:16]
    assert at_rest(pipeline)
