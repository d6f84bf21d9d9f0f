"""Texts of asyncio's tasks: queued and in turns, beside those of threads, and nobody is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import queued_texts
import test_pipeline
from queued_texts import OPTIONS, PROMPT, TASKS, Held, at_rest, prompt_of, run, soon, tell_nobody
from waiting import LIMIT_S, Apart

from edgedec import Pipeline
from edgedec.generation import turns
from edgedec.generation.queue import Line
from edgedec.generation.stream import Stream

bundle, pipeline, one = test_pipeline.bundle, queued_texts.pipeline, queued_texts.one
held, expected = queued_texts.held, queued_texts.expected


async def test_20_tasks_get_the_texts_that_they_would_get_alone(
    pipeline: Pipeline, expected: list[list[int]]
) -> None:
    texts = (pipeline.agenerate(prompt_of(n), OPTIONS) for n in range(TASKS))
    assert [found.token_ids for found in list(await asyncio.gather(*texts))] == expected
    assert at_rest(pipeline)


async def test_events_come_as_they_are_decoded(one: Pipeline, expected: list[list[int]]) -> None:
    stream = one.astream(prompt_of(3), OPTIONS)
    assert stream.metrics is None
    found = [event.token async for event in stream]
    tokens, stream = (found, stream)
    assert tokens == expected[3]
    assert stream.result is not None
    assert stream.result.token_ids == tokens
    assert stream.metrics is stream.result.metrics


async def test_the_loop_goes_on_during_a_pass(one: Pipeline, held: Held) -> None:
    """The pass ends when the loop says so: a loop that waited for it would wait forever."""
    task = asyncio.create_task(one.agenerate(PROMPT, OPTIONS))
    await soon(held.inside.is_set)
    held.go_on.set()
    assert len((await task).token_ids) == 24


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
        places = min(tasks, pipeline._queue.places.count)
        await soon(lambda: submitted[0] >= places)
        begun.release()
        await asyncio.gather(*running)

    submitted, submit = [0], pipeline._queue.submit

    def counted(*given: Any) -> None:
        submit(*given)
        submitted[0] += 1

    monkeypatch.setattr(pipeline._queue, "submit", counted)
    run(main())
    return order


def test_texts_take_turns(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def charge(texts: Any, text: Any, seconds: float, *, read: bool) -> None:
        text.used_s += 1  # each turn takes as long as the others

    monkeypatch.setattr(turns, "charge", charge)
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=3) as pipeline:
        order = [name for name, _ in order_of_rounds(pipeline, monkeypatch, 3)]
        assert sorted(set(order)) == [0, 1, 2]
        # The first may have had a turn before the others came.
        ahead = int(order[:2] == [0, 0])
        whole = range(ahead, len(order) - 2, 3)
        assert all(set(order[at : at + 3]) == {0, 1, 2} for at in whole)
        assert len(whole) >= len(order) // 3 - 1


def test_texts_begin_in_the_order_in_which_their_tasks_came(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = [name for name, ended in order_of_rounds(one, monkeypatch, 8) if ended]
    assert order == list(range(8))


async def test_a_queue_that_loses_a_task_is_noticed(
    one: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: who leaves tells nobody. The other tasks wait for good."""
    monkeypatch.setattr(Line, "leave", tell_nobody)
    tasks = [asyncio.create_task(one.agenerate(prompt_of(n), OPTIONS)) for n in range(3)]
    await tasks[0]
    line = one._queue.places
    await soon(lambda: len(line) == 2)
    told = [ticket.called for ticket in line.tickets]
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(told) == 0


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
