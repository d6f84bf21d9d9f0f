"""What goes wrong with a task's text is raised in that task, and the next one goes on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import queued_texts
import test_pipeline
import test_turns
from queued_texts import OPTIONS, PROMPT, Held, at_rest, prompt_of, run, soon, waiting
from test_pipeline import LONG
from waiting import Apart

from edgedec import Pipeline
from edgedec.errors import InputError, PassFailed, PromptTooLong, StateError
from edgedec.runtimes.onnx.session import OnnxSession

bundle, one, held = test_pipeline.bundle, queued_texts.one, queued_texts.held
alone = test_turns.alone


class TestErrors:
    @pytest.mark.parametrize(
        ("prompt", "error"),
        [(LONG * 2, PromptTooLong), ([], InputError), ([10_000], InputError), (None, InputError)],
    )
    async def test_of_a_request_are_raised_by_the_first_event(
        self, one: Pipeline, prompt: Any, error: type[Exception]
    ) -> None:
        stream = one.astream(prompt)
        with pytest.raises(error):
            await anext(stream)
        assert [event async for event in stream] == []
        with pytest.raises(error):
            await one.agenerate(prompt)
        assert at_rest(one)
        assert len((await one.agenerate(PROMPT, OPTIONS)).token_ids) == 24

    def test_a_wrong_name_is_refused_at_once(self, one: Pipeline) -> None:
        with pytest.raises(TypeError, match="unknown option 'max_tokens'"):
            one.astream(PROMPT, max_tokens=3)  # type: ignore[call-arg]

    async def test_of_a_pass_are_raised_and_the_next_text_goes_on(
        self, one: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(*args: Any, **named: Any) -> Any:
            return 1 // 0

        with monkeypatch.context() as patch:
            patch.setattr(OnnxSession, "forward", failing)
            with pytest.raises(ZeroDivisionError):
                await one.agenerate(PROMPT, OPTIONS)
        assert len((await one.agenerate(PROMPT, OPTIONS)).token_ids) == 24

    async def test_a_text_that_would_wait_is_refused(self, one: Pipeline, held: Held) -> None:
        first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
        await soon(held.inside.is_set)
        with pytest.raises(StateError, match="another text is being decoded"):
            await one.agenerate([5, 6], OPTIONS, wait=False)
        assert waiting(one) == 0
        held.go_on.set()
        await first
        await one.agenerate([5, 6], OPTIONS, wait=False)

    async def test_a_text_is_out_of_time_while_it_waits(self, one: Pipeline, held: Held) -> None:
        first = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
        await soon(held.inside.is_set)
        found = asyncio.create_task(one.agenerate([5, 6], OPTIONS, timeout=1e-9))
        await soon(lambda: waiting(one) == 1)
        await asyncio.sleep(0)
        held.go_on.set()
        late = await found
        assert (late.finish_reason, late.text) == ("timeout", "")
        await first

    async def test_a_stream_of_the_loop_s_own_thread_is_not_waited_for(self, one: Pipeline) -> None:
        mine = one.stream(PROMPT, OPTIONS)
        next(mine)
        with pytest.raises(StateError, match="another text is being decoded"):
            await one.agenerate([5, 6], OPTIONS)
        mine.close()
        await one.agenerate([5, 6], OPTIONS)

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


async def test_closing_ends_all_texts(one: Pipeline, held: Held) -> None:
    tasks = [asyncio.create_task(one.agenerate(prompt_of(n), OPTIONS)) for n in range(4)]
    await soon(lambda: held.inside.is_set() and waiting(one) == 3)
    closes = Apart(one.close)
    await soon(lambda: one._queue.closed)
    held.go_on.set()
    await soon(lambda: not closes.running)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, StateError) for error in found)
    assert {str(error) for error in found} == {"the pipeline is closed: open a new one"}
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("edgedec-async") for name in names)
