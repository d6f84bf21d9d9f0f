"""Models of a server in the test's process: small pairs that stand for larger ones.

What each takes of the memory is a number, files are half as long and empty, and a test may
hold the opening of one or have it fail. Time passes when a test says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from served_here import models_here
from waiting import LIMIT_S

from edgedec import Pipeline
from edgedec.loading.sources import Source
from edgedec.serve.models import Models
from edgedec.serve.offer import Offer
from edgedec.serve.settings import Settings

ASKED: dict[str, Any] = {"prompt": "def f", "max_tokens": 4, "temperature": 0}


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes when a test says so, and else as slowly as that of others."""

    _skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self._skipped_s

    def passes(self, seconds: float) -> None:
        """Let time pass; timers that are due come with the next turn of the loop."""
        self._skipped_s += seconds


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of that kind, to its end and that of what it began."""
    loop = Clock()
    try:
        loop.run_until_complete(test)
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def passes(seconds: float) -> None:
    """Let time pass in the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    loop.passes(seconds)


async def until(holds: Callable[[], object]) -> None:
    """Wait in the loop until a condition holds."""
    for _ in range(int(LIMIT_S * 200)):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


class World:
    """Models by name, each of so many bytes, in a process of so many.

    Args:
        bundle: what each is in truth.
        folder: for their files.
        sizes: bytes by name.
        limit: what all may take together.

    Attributes:
        log: what was opened and closed, in order: ``+a``, ``-a``.
        failing: errors by name, raised when that is opened.
        held: names whose opening waits until they are taken from it.
        opening: names whose opening has begun.
        squeezed: names whose context is short beside other models.

    """

    def __init__(
        self, bundle: Path, folder: Path, sizes: Mapping[str, int], limit: int = 1 << 40
    ) -> None:
        self._bundle, self.sizes, self.limit = bundle, dict(sizes), limit
        self.files = {name: folder / f"{name}.bin" for name in sizes}
        for name, file in self.files.items():
            with file.open("wb") as stream:
                stream.truncate(sizes[name] // 2)  # the other half is beside its file
        self.log: list[str] = []
        self.there: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.held: set[str] = set()
        self.opening: list[str] = []
        self.squeezed: set[str] = set()
        self.pipelines: dict[str, Pipeline] = {}

    def models(self, **settings: Any) -> Models:
        """The models of a server."""
        offers = [
            Offer(name, partial(self._open, name), partial(self._source, name), (f"id-{name}",))
            for name in self.sizes
        ]
        first = next(iter(self.sizes))
        return Models(offers, Settings(first, **settings), self.limit, read=self.bytes)

    def bytes(self) -> int:
        """What the process holds."""
        return sum(self.sizes[name] for name in self.there)

    def _source(self, name: str) -> Source:
        with Pipeline.open(self._bundle, drafter="none", threads=1) as pipeline:
            read = pipeline.pair.target.read_tokenizer
        return Source(
            "target", "onnx", self.files[name], {name: self.files[name]}, read, lambda: None,
            max_context=64, architecture="llama", parameters=1000,
        )  # fmt: skip

    def _open(self, name: str) -> Pipeline:
        self.opening.append(name)
        for _ in range(int(LIMIT_S * 200)):
            if name not in self.held:
                break
            threading.Event().wait(0.005)
        if name in self.failing:
            raise self.failing[name]
        short = 32 if self.there and name in self.squeezed else None
        pipeline = Pipeline.open(
            self._bundle, drafter="none", threads=1, parallel=4, max_context=short
        )
        close = pipeline.close

        def closed() -> None:
            close()
            self.log.append(f"-{name}")
            self.there.remove(name)

        pipeline.close = closed  # type: ignore[method-assign]
        self.log.append(f"+{name}")
        self.there.append(name)
        self.pipelines[name] = pipeline
        return pipeline


@asynccontextmanager
async def served(there: World, **settings: Any) -> AsyncIterator[tuple[World, httpx.AsyncClient]]:
    """A server of a world's models."""
    async with models_here(there.models(**settings)) as client:
        yield there, client


async def asked(client: httpx.AsyncClient, name: str | None = None, **fields: Any) -> Any:
    """The answer to a request for a short text of a model."""
    body = {**ASKED, **({} if name is None else {"model": name}), **fields}
    return await client.post("/v1/completions", json=body)


async def loaded(client: httpx.AsyncClient) -> list[str]:
    """Names of the models that are loaded."""
    return [one["name"] for one in (await client.get("/api/ps")).json()["models"]]
