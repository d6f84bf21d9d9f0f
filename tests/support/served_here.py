"""A server inside the test's process, without sockets; and what its tokenizer is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from edgedec import Pipeline
from edgedec.serve.app import Routes
from edgedec.serve.model import Served
from edgedec.serve.models import Models
from edgedec.serve.settings import Settings
from edgedec.text.tokenizer import Tokenizer

ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 2, "temperature": 0}


@asynccontextmanager
async def models_here(models: Models) -> AsyncIterator[httpx.AsyncClient]:
    """A server of this process, without sockets."""
    transport = httpx.ASGITransport(Routes(models).app(), raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=60
        ) as client:
            yield client
    finally:
        # As the server does it, whose loop goes on meanwhile.
        await asyncio.to_thread(models.close)


@asynccontextmanager
async def serving_here(
    pipeline: Pipeline, **settings: Any
) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    """A server of one model in this process."""
    models = Models.alone(pipeline, Settings("tiny", **settings))
    async with models_here(models) as client:
        (served,) = models.loaded
        yield served, client


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


class Noted:
    """A tokenizer that notes what it is given, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        self.threads: list[str] = []
        self.aside: list[bool] = []
        encode = Tokenizer.encode

        def noted(tokenizer: Tokenizer, text: str, **options: Any) -> list[int]:
            self.texts.append(text)
            self.threads.append(threading.current_thread().name)
            self.aside.append(options.get("aside", False))
            return encode(tokenizer, text, **options)

        monkeypatch.setattr(Tokenizer, "encode", noted)
