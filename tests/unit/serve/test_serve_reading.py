"""Long requests: parsed and tokenised aside, one at a time, short ones first, within memory."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from functools import partial
from typing import Any

import pytest
import tiny_tokenizers
from hypothesis import given
from hypothesis import strategies as st
from served_here import ASKED, Noted, run, serving_here
from waiting import LIMIT_S

from edgedec import GenerateOptions, Pipeline
from edgedec.serve import body, errors, lane
from edgedec.serve.errors import ApiError
from edgedec.serve.lane import Lane
from edgedec.serve.prompts import SHORT, Prompts
from edgedec.serve.turns import Ticket, Work
from edgedec.text.tokenizer import Tokenizer

LONG = "    " * 1100  # more than a short text, and few enough tokens for the context


class TestPrompts:
    def test_more_characters_than_tokens_can_stand_for_are_refused_unread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
        longest = tokenizer.longest_token
        assert longest
        context = 1 + SHORT // longest
        noted = Noted(monkeypatch)
        with pytest.raises(ApiError, match=f"more than {context} tokens") as refused:
            Prompts(tokenizer, context).encode("x" * (longest * context + 1))
        assert refused.value.code == "context_length_exceeded"
        assert not noted.texts
        # One character fewer might fit, and is looked at.
        with pytest.raises(ApiError):
            Prompts(tokenizer, context).encode("x" * (longest * context))
        assert noted.texts

    def test_what_fits_by_its_tokens_is_taken(self) -> None:
        tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
        text = "    " * 50_000  # longer than the first part of a text
        tokens = tokenizer.encode(text)
        assert Prompts(tokenizer, len(tokens)).encode(text) == tokens
        with pytest.raises(ApiError, match=f"the prompt has {len(tokens)} tokens"):
            Prompts(tokenizer, len(tokens) - 1).encode(text)

    def test_of_a_text_far_too_long_only_the_beginning_is_tokenised(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})
        tokenizer.longest_token = None  # type: ignore[assignment]
        noted = Noted(monkeypatch)
        with pytest.raises(ApiError, match="more than 64 tokens and the context holds 64"):
            Prompts(tokenizer, 64).encode("word " * 200_000)
        assert [len(text) < 100_000 for text in noted.texts] == [True]

    def test_long_texts_are_tokenised_aside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        noted = Noted(monkeypatch)
        prompts = Prompts(Tokenizer(tiny_tokenizers.byte_level(), {}), 100_000)
        prompts.encode("x" * SHORT)
        prompts.encode("x" * (SHORT + 1))
        assert noted.aside == [False, True]

    def test_memory_is_asked_for_before_it_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        noted = Noted(monkeypatch)

        def check(needed: int) -> None:
            if needed > 2_000_000:
                raise ApiError(503, "no room")

        prompts = Prompts(Tokenizer(tiny_tokenizers.byte_level(), {}), 100_000, check)
        assert prompts.encode("x" * 5000)
        with pytest.raises(ApiError, match="no room"):
            prompts.encode("x" * 50_000)
        assert len(noted.texts) == 1


class TestReading:
    """Long requests are parsed and tokenised in one thread that is not the loop's."""

    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
    async def test_the_event_loop_goes_on(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        noted, gate, begun = Noted(monkeypatch), threading.Event(), threading.Event()
        loads = json.loads

        def held(text: Any, **options: Any) -> Any:
            if len(text) > SHORT:
                begun.set()
                assert gate.wait(LIMIT_S)
            return loads(text, **options)

        monkeypatch.setattr(body.json, "loads", held)
        chat = path == "/v1/chat/completions"
        given = {"messages": [{"role": "user", "content": LONG}]} if chat else {"prompt": LONG}
        given |= {} if path == "/tokenize" else ASKED
        async with serving_here(pipeline) as (_, client):
            asking = [asyncio.create_task(client.post(path, json=given)) for _ in range(9)]
            await asyncio.to_thread(begun.wait, 30)
            # The loop answers others while one request is read.
            assert (await client.get("/health")).status_code == 200
            short = await client.post("/v1/completions", json={**ASKED, "prompt": "x"})
            assert short.status_code == 200
            assert not any(one.done() for one in asking)
            gate.set()
            assert {one.status_code for one in await asyncio.gather(*asking)} == {200}
        long = [
            name for name, text in zip(noted.threads, noted.texts, strict=True) if len(text) > SHORT
        ]
        assert len(long) == 9
        assert all(name.startswith("edgedec-reader") for name in long)

    async def test_as_many_as_the_queue_holds_may_come_at_once(self, pipeline: Pipeline) -> None:
        given = {**ASKED, "prompt": "    " * 1500}
        async with serving_here(pipeline) as (_, client):
            asking = [client.post("/v1/completions", json=given) for _ in range(30)]
            answers = await asyncio.gather(*asking)
            assert [one.status_code for one in answers] == [200] * 30

    async def test_no_prompt_is_read_while_the_queue_is_full(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noted = Noted(monkeypatch)
        async with serving_here(pipeline, parallel=1, queue=1) as (served, client):
            work = Work([5, 6, 7], GenerateOptions(1900, ignore_eos=True))
            for _ in range(2):
                served.turns.submit(Ticket([work] * 100, timeout_s=60))
            for prompt in ("x", LONG):
                found = await client.post("/v1/completions", json={**ASKED, "prompt": prompt})
                assert found.status_code == 429
                assert int(found.headers["retry-after"]) > 0
            assert not noted.texts
            # What is only counted needs no place.
            found = await client.post("/tokenize", json={"prompt": LONG})
            assert found.status_code == 200

    def test_a_short_one_does_not_wait_behind_long_ones(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read() -> list[int]:
            """The kilobytes of texts, as they are read: three long ones come, and a short one."""
            gate, begun, loads = threading.Event(), threading.Event(), json.loads
            sizes: list[int] = []

            def held(text: Any, **options: Any) -> Any:
                sizes.append(len(text) // 1000)
                begun.set()
                assert gate.wait(LIMIT_S)
                return loads(text, **options)

            async def main() -> None:
                async with serving_here(pipeline) as (served, client):

                    async def ask(kilobytes: int) -> None:
                        given = {"prompt": "    " * 250 * kilobytes}
                        assert (await client.post("/tokenize", json=given)).status_code == 200

                    asking = []
                    for kilobytes in (30, 31, 32, 6):
                        asking.append(asyncio.create_task(ask(kilobytes)))
                        while served.reader.jobs < len(asking):
                            await asyncio.sleep(0)
                        await asyncio.to_thread(begun.wait, 30)
                    gate.set()
                    await asyncio.gather(*asking)

            with monkeypatch.context() as patch:
                patch.setattr(body.json, "loads", held)
                run(main())
            return sizes

        assert read() == [30, 6, 31, 32]
        # Broken twin: the order in which they came.
        monkeypatch.setattr(lane, "due", lambda sizes, overtaken: 0)
        assert read() == [30, 31, 32, 6]

    async def test_one_at_a_time_in_order(self) -> None:
        running, most = 0, 0
        lock = threading.Lock()
        order: list[int] = []

        def job(number: int) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1
            order.append(number)

        lane = Lane("test")
        await asyncio.gather(*(lane.run(partial(job, number)) for number in range(9)))
        assert not lane.settle(1)  # there is nothing to wait for
        lane.close()
        lane.join()
        assert most == 1
        assert order == list(range(9))

    async def test_each_job_that_ends_may_have_given_memory_back(self) -> None:
        gates = [threading.Event() for _ in range(2)]
        lane = Lane("test")
        jobs = [asyncio.create_task(lane.run(partial(gate.wait, 30))) for gate in gates]
        await asyncio.sleep(0)
        assert not lane.settle(0)
        with lane._changed:  # the first one does not end before it is waited for
            gates[0].set()
            assert lane.settle(30)
        assert lane.jobs == 1
        gates[1].set()
        await asyncio.gather(*jobs)
        lane.close()
        lane.join()

    async def test_what_waits_is_turned_away_at_the_end(self) -> None:
        gate, begun = threading.Event(), threading.Event()

        def job() -> bool:
            begun.set()
            return gate.wait(LIMIT_S)

        lane = Lane("test")
        jobs = [asyncio.create_task(lane.run(job)) for _ in range(3)]
        assert await asyncio.to_thread(begun.wait, 30)
        settling = asyncio.create_task(asyncio.to_thread(lane.settle, 30))
        lane.close()
        gate.set()
        first, *others = await asyncio.gather(*jobs, return_exceptions=True)
        assert first is True
        assert all(isinstance(one, ApiError) and one.status == 503 for one in others)
        await settling
        with pytest.raises(ApiError, match="shutting down"):
            await lane.run(gate.wait)
        lane.join()

    async def test_a_request_that_memory_does_not_hold_is_refused_alone(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noted = Noted(monkeypatch)
        monkeypatch.setattr(Pipeline, "free_bytes", lambda self: 500_000)
        async with serving_here(pipeline) as (_, client):
            found = await client.post("/v1/completions", json={**ASKED, "prompt": LONG})
            assert found.status_code == 503
            assert found.headers["retry-after"]
            assert found.json()["error"]["code"] == "insufficient_memory"
            assert "1.0 MB" in found.json()["error"]["message"]
            assert not noted.texts
            assert (
                await client.post("/v1/completions", json={**ASKED, "prompt": "x"})
            ).status_code == 200


def errors_alive() -> int:
    return sum(isinstance(one, ApiError) for one in gc.get_objects())


def test_a_refused_request_leaves_nothing_to_the_garbage_collector(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is kept keeps, by its traceback, the body and what was made of it."""

    async def refused(left: int) -> None:
        async with serving_here(pipeline) as (_, client):
            for given in ({"prompt": "x", "n": 99}, {"prompt": "x" * 100_000}):
                found = await client.post("/v1/completions", json={**ASKED, **given})
                assert found.status_code == 400
            while errors_alive() > left:  # the thread lets go of it in a moment
                await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        run(refused(left=0))
        # The control: errors that are kept.
        kept: list[Exception] = []
        of = errors.of
        monkeypatch.setattr(errors, "of", lambda error: kept.append(error) or of(error))
        run(refused(left=2))
        assert errors_alive() == 2
    finally:
        gc.enable()


def read_before(size: int, waiting: list[int], coming: list[list[int]]) -> tuple[int, bool]:
    """What is done before a job, and whether that is as little as is promised.

    Args:
        size: of the job.
        waiting: sizes of those that wait as it comes.
        coming: sizes of those that come after it, before each turn.

    """
    jobs = [(one, False) for one in waiting] + [(size, True)]
    overtaken = done = 0
    for more in [*coming, *[[]] * (len(waiting) + 1)]:
        jobs += [(one, False) for one in more]
        place = lane.due([one for one, _ in jobs], overtaken)
        one, is_it = jobs.pop(place)
        if is_it:
            return done, done <= 2 * sum(waiting) + size
        overtaken = overtaken + one if place else 0
        done += one
    return done, False


SIZES = st.lists(st.integers(1, 50), max_size=6)


@given(size=st.integers(1, 50), waiting=SIZES, coming=st.lists(SIZES, max_size=300))
def test_no_request_waits_for_much_more_than_what_it_found(
    size: int, waiting: list[int], coming: list[list[int]]
) -> None:
    coming = [*coming, *[[1]] * (2 * sum(waiting) + size)]
    assert read_before(size, waiting, coming)[1]


def test_who_starves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: always the shortest. A long one then waits for every short one that comes."""
    coming = [[5]] * 1000
    assert read_before(400, [300, 500], coming) == (2 * (300 + 500) + 400, True)
    monkeypatch.setattr(lane, "due", lambda sizes, overtaken: sizes.index(min(sizes)))
    assert read_before(400, [300, 500], coming) == (5000 + 300, False)
