"""A server in a thread whose streams wait after their first piece until a test lets them go on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from waiting import LIMIT_S, until

from edgedec import Pipeline
from edgedec.serve.app import Routes
from edgedec.serve.models import Models
from edgedec.serve.protocol import limited
from edgedec.serve.settings import Settings


class Held:
    """An application around another.

    Attributes:
        holding: set while a stream's first piece is with its client, and nothing follows.
        go_on: lets what follows go on.

    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.holding, self.go_on = threading.Event(), threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams = pieces = 0

        async def held(message: Message) -> None:
            nonlocal streams, pieces
            if message["type"] == "http.response.start":
                streams = (b"content-type", b"text/event-stream") in [
                    (name, value.partition(b";")[0]) for name, value in message["headers"]
                ]
            elif streams:
                if pieces == 1:
                    self.holding.set()
                    assert await asyncio.to_thread(self.go_on.wait, LIMIT_S)
                    self.holding.clear()
                pieces += 1
            await send(message)

        await self._app(scope, receive, held)


@contextmanager
def holding(pipeline: Pipeline) -> Iterator[tuple[Held, str]]:
    """Serve a pipeline; yields what holds its streams, and ``host:port``."""
    settings = Settings("tiny")
    models = Models.alone(pipeline, settings)
    held = Held(Routes(models).app())
    http = limited(settings.limits.idle_s)
    config: Any = {"http": http, "lifespan": "off", "log_level": "error"}
    server = uvicorn.Server(uvicorn.Config(held, **config))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
        thread.start()
        try:
            until(lambda: server.started)
            host, port = sock.getsockname()
            yield held, f"{host}:{port}"
        finally:
            held.go_on.set()
            server.should_exit = True
            thread.join(LIMIT_S)
            models.close()
