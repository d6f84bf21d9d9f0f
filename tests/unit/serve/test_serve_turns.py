"""The decoding thread: memory that is about to come back, Retry-After, the end, a private cache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from served_here import ASKED
from serving import Server

from edgedec import GenerateOptions, Pipeline
from edgedec.errors import MemoryBudgetError
from edgedec.serve.errors import ApiError
from edgedec.serve.settings import Settings
from edgedec.serve.turns import Ticket, Turns, Work


def ticket(tokens: int = 4) -> Ticket:
    return Ticket([Work([5, 6, 7], GenerateOptions(tokens, ignore_eos=True))], timeout_s=60)


async def texts_of(one: Ticket) -> int:
    found = 0
    while news := await one.take():
        found += sum(item.result is not None for item in news)
    return found


async def at_once(turns: Turns, *lengths: int) -> None:
    """Texts of these lengths come at once, and each of them ends."""
    tickets = [ticket(tokens) for tokens in lengths]
    with turns._lock:
        for one in tickets:
            turns.submit(one)
    assert [await texts_of(one) for one in tickets] == [1] * len(lengths)


class TestTurns:
    async def test_a_text_waits_for_memory_that_is_about_to_be_given_back(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream, refusals = Pipeline.stream, [2]

        def short_of_memory(self: Pipeline, *given: Any, **options: Any) -> Any:
            if refusals[0]:
                refusals[0] -= 1
                raise MemoryBudgetError("no room")
            return stream(self, *given, **options)

        monkeypatch.setattr(Pipeline, "stream", short_of_memory)
        settled = [True, True]
        turns = Turns(pipeline, Settings("tiny"), settled=lambda: bool(settled and settled.pop()))
        turns.submit(one := ticket())
        assert await texts_of(one) == 1
        assert not settled
        # Broken twin: nothing is about to be given back.
        refusals[0] = 1
        turns.submit(two := ticket())
        with pytest.raises(ApiError, match="no room") as refused:
            await texts_of(two)
        assert (refused.value.status, refused.value.retry_s) == (503, 5)
        turns.close()

    async def test_a_text_that_fits_goes_before_one_that_waits_for_memory(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream, order = Pipeline.stream, []
        settled = threading.Event()

        def short_of_memory(self: Pipeline, prompt: Any, options: Any) -> Any:
            order.append(options.max_new_tokens)
            if options.max_new_tokens > 4 and not settled.is_set():
                raise MemoryBudgetError("no room")
            return stream(self, prompt, options)

        def settle() -> bool:
            order.append(0)
            settled.set()
            return True

        monkeypatch.setattr(Pipeline, "stream", short_of_memory)
        turns = Turns(pipeline, Settings("tiny", parallel=1), settled=settle)
        await at_once(turns, 2, 8, 9, 3)
        # Each that does not fit lets one go first; then memory is waited for.
        assert order == [2, 8, 9, 8, 0, 8, 9, 3]
        turns.close()

    async def test_nobody_who_comes_later_takes_the_memory_that_a_text_waits_for(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream, order = Pipeline.stream, []
        short = 4
        turns = Turns(pipeline, Settings("tiny", parallel=2))

        def short_of_memory(self: Pipeline, prompt: Any, options: Any) -> Any:
            if options.max_new_tokens > short and len(turns.running) > 1:
                raise MemoryBudgetError("no room beside another")
            order.append(options.max_new_tokens)
            return stream(self, prompt, options)

        monkeypatch.setattr(Pipeline, "stream", short_of_memory)
        await at_once(turns, 4, 9, 3, 2, 1)
        # The long one before the short ones that came after it, though they would fit at once.
        assert order == [4, 9, 3, 2, 1]
        turns.close()

    async def test_retry_after_counts_decoding_alone(self, pipeline: Pipeline) -> None:
        turns = Turns(pipeline, Settings("tiny", parallel=1, queue=1))
        for _ in range(30):
            one = ticket()
            one.began -= 1000  # it waited in the queue
            turns.submit(one)
            await texts_of(one)
        while turns.running:
            await asyncio.sleep(0)
        running, waiting = ticket(1900), ticket()
        turns.submit(running)
        turns.submit(waiting)
        with pytest.raises(ApiError) as refused:
            turns.submit(ticket())
        assert refused.value.retry_s is not None
        assert refused.value.retry_s <= 5
        turns.close()

    async def test_at_the_end_texts_go_on_and_nothing_else_begins(self, pipeline: Pipeline) -> None:
        async def texts_of_new(turns: Turns) -> int:
            turns.submit(one := ticket())
            return await texts_of(one)

        turns = Turns(pipeline, Settings("tiny", parallel=1))
        running, waiting = ticket(200), ticket()
        turns.submit(running)
        assert await running.take()
        turns.submit(waiting)
        turns.end()
        for refused in (texts_of(waiting), texts_of_new(turns)):
            with pytest.raises(ApiError, match="shutting down"):
                await refused
        assert await texts_of(running) == 1
        turns.close()


def cached(server: Server) -> int:
    """Tokens that the second of two equal requests did not read."""
    given = {**ASKED, "prompt": "A secret of somebody else"}
    answers = [server.post("/v1/completions", given).json() for _ in range(2)]
    found: int = answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def test_what_others_asked_does_not_show_with_a_private_cache(
    server: Server, start: Callable[..., Any]
) -> None:
    assert cached(server) > 5
    with start("--private-cache") as private:
        assert cached(private) == 0
