"""Tasks cancelled at any point, readers who leave: the pipeline is ready for the next text."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from typing import Any

import pytest
import queued_texts
import test_pipeline
from kinds import in_full
from queued_texts import OPTIONS, PROMPT, TASKS, Held, at_rest, prompt_of, soon, waiting
from test_pipeline import LONG
from waiting import LIMIT_S, until

from edgedec import Pipeline
from edgedec.generation.asynchronous import AsyncStream
from edgedec.generation.queue import Place
from edgedec.runtimes.onnx.session import OnnxSession

bundle, pipeline, one = test_pipeline.bundle, queued_texts.pipeline, queued_texts.one
held, expected = queued_texts.held, queued_texts.expected


class TestCancelledTasks:
    @pytest.mark.parametrize("seed", in_full(range(4), 2))
    async def test_any_of_them_at_any_point(
        self, pipeline: Pipeline, expected: list[list[int]], seed: int
    ) -> None:
        chance = random.Random(seed)

        async def one_task(number: int) -> list[int]:
            if number % 2:
                return (await pipeline.agenerate(prompt_of(number), OPTIONS)).token_ids
            return [event.token async for event in pipeline.astream(prompt_of(number), OPTIONS)]

        tasks = [asyncio.create_task(one_task(number)) for number in range(TASKS)]
        for task in chance.sample(tasks, TASKS // 2):
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        gc.collect()
        until(lambda: at_rest(pipeline))
        for number, text in enumerate(found):
            assert text == expected[number] or isinstance(text, asyncio.CancelledError)
        assert sum(isinstance(text, list) for text in found) >= TASKS // 2
        assert pipeline.generate(prompt_of(0), OPTIONS).token_ids == expected[0]

    async def test_one_that_waits_for_its_place(self, one: Pipeline, held: Held) -> None:
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
        assert (len((await first).token_ids) + len((await third).token_ids)) == 48
        assert at_rest(one)

    async def test_one_in_the_middle_of_a_pass_ends_after_it(
        self, one: Pipeline, held: Held
    ) -> None:
        first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
        await soon(held.inside.is_set)
        first.cancel()
        await asyncio.sleep(0)
        assert not first.done(), "its pass goes on"
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert at_rest(one)
        assert len(one.generate([5, 6], OPTIONS).token_ids) == 24

    async def test_one_whose_prompt_is_being_read_ends_at_the_next_chunk(
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
        task = asyncio.create_task(one.agenerate(LONG, OPTIONS))
        await soon(inside.is_set)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert chunks == [1]
        assert at_rest(one)

    async def test_one_that_keeps_its_place_is_noticed(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Broken twin: a text that was left stays in the line."""
        monkeypatch.setattr(Place, "leave", lambda place: None)
        task = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
        await soon(lambda: not at_rest(one))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not at_rest(one)


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
    async def test_the_place_is_free_for_the_next_text(self, one: Pipeline, how: str) -> None:
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
        assert at_rest(one)

    async def test_a_stream_that_nobody_has_any_more_ends(self, one: Pipeline) -> None:
        stream = one.astream(LONG[:40], OPTIONS, max_new_tokens=900)
        await anext(stream)
        metrics = stream.metrics
        del stream
        gc.collect()
        await soon(lambda: at_rest(one))
        assert metrics is not None
        assert metrics.emitted < 900

    async def test_one_that_was_cancelled_before_its_first_event(self, one: Pipeline) -> None:
        stream = one.astream(PROMPT, OPTIONS)
        stream.cancel()
        assert [event async for event in stream] == []
        found = stream.result
        assert found is not None
        assert (found.finish_reason, found.text) == ("cancelled", "")
        assert at_rest(one)

    async def test_one_that_was_never_read_takes_nothing(self, one: Pipeline) -> None:
        stream = one.astream(PROMPT, OPTIONS)
        assert at_rest(one)
        await stream.aclose()
        assert [event async for event in stream] == []

    async def test_a_slow_reader_keeps_nobody_waiting(self, one: Pipeline) -> None:
        """Not even the same task, in the body of its loop."""
        read = 0
        async for _ in one.astream(PROMPT, OPTIONS):
            read += 1
            inner = await one.agenerate([5, 6, read], OPTIONS)
            assert len(inner.token_ids) == 24
            if read == 3:
                break
        assert (read, len(inner.token_ids)) == (3, 24)

    def test_a_loop_that_was_closed_leaves_nothing_behind(self, one: Pipeline, held: Held) -> None:
        """And its text does not go on to the end."""
        loop = asyncio.new_event_loop()
        stream = one.astream(PROMPT, OPTIONS, max_new_tokens=900)
        task = loop.create_task(self.left(stream, "break"))
        while not held.inside.is_set():
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        held.go_on.set()
        until(lambda: at_rest(one))
        assert stream.metrics is not None
        assert stream.metrics.emitted < 900
        assert len(one.generate([5, 6], OPTIONS).token_ids) == 24
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task
        gc.collect()
