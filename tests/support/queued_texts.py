"""A pipeline whose texts wait: what tests of threads and of asyncio's tasks share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT_S

from edgedec import GenerateOptions, Pipeline
from edgedec.generation.queue import Line, Ticket
from edgedec.runtimes.onnx.session import OnnxSession

PROMPT = [5, 6, 7, 8, 5, 6, 7]
OPTIONS = GenerateOptions(max_new_tokens=24, ignore_eos=True)
TASKS = 20


@pytest.fixture(params=[1, 3], ids="parallel {}".format)
def pipeline(bundle: Path, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with Pipeline.open(bundle, drafter="hybrid", threads=1, parallel=request.param) as opened:
        yield opened


@pytest.fixture
def one(bundle: Path) -> Iterator[Pipeline]:
    """A pipeline that decodes one text at a time."""
    with Pipeline.open(bundle, drafter="none", threads=1) as opened:
        yield opened


class Held:
    """The first pass waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        honest = OnnxSession.forward

        def forward(session: OnnxSession, *args: Any, **named: Any) -> Any:
            self.inside.set()
            assert self.go_on.wait(LIMIT_S)
            return honest(session, *args, **named)

        monkeypatch.setattr(OnnxSession, "forward", forward)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found = Held(monkeypatch)
    yield found
    found.go_on.set()


def waiting(pipeline: Pipeline) -> int:
    """How many texts wait for a pipeline that decodes one at a time."""
    return len(pipeline._queue.places) - 1


def at_rest(pipeline: Pipeline) -> bool:
    """Whether nobody decodes or waits."""
    return len(pipeline._queue.places) == len(pipeline._queue.rounds) == 0


def tell_nobody(line: Line, ticket: Ticket) -> None:
    """Broken twin of ``Line.leave``: those after it are lost."""
    line.tickets.pop(ticket, None)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a program of asyncio; one that stops for good fails."""
    return asyncio.run(asyncio.wait_for(main, LIMIT_S))


async def soon(holds: Callable[[], object]) -> None:
    """Let other tasks run until a condition holds."""
    while not holds():
        await asyncio.sleep(0)


def prompt_of(number: int) -> list[int]:
    return [*PROMPT, number]


@pytest.fixture(scope="module")
def expected(bundle: Path) -> list[list[int]]:
    """The texts of all tasks, decoded plainly one after another."""
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        return [pipeline.generate(prompt_of(n), OPTIONS).token_ids for n in range(TASKS)]
