"""Carries a request's texts to its client, and ends them if the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgedec.generation.result import Generation
from edgedec.serve import errors
from edgedec.serve.answers import Writer
from edgedec.serve.form import Form
from edgedec.serve.turns import News, Ticket, joined


class EventStream(Response):
    """A streamed answer; a client that leaves ends its texts.

    Args:
        writer: writes them.
        form: of the chunks on the wire.
        ticket: the texts.
        first: news that have come already.
        headers: of the response, besides those of a stream.

    """

    def __init__(
        self,
        writer: Writer,
        form: Form,
        ticket: Ticket,
        first: list[News],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(media_type=form.media_type, headers=headers)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"  # nginx passes each event on at once
        self._writer, self._form, self._ticket, self._first = writer, form, ticket, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(receive, self._ticket):
            try:
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
                async for text in self._texts():
                    data = text.encode("ascii")
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    self._ticket.sent()
                await send({"type": "http.response.body", "body": b""})
            finally:
                self._ticket.leave()

    async def _texts(self) -> AsyncIterator[str]:
        news, form = self._first, self._form
        text = form.begin()
        try:
            while news:
                text += "".join(
                    form.chunk(chunk) for item in joined(news) for chunk in self._chunks(item)
                )
                if text:
                    yield text
                news, text = await self._ticket.take(), ""
            yield text + form.end(self._writer.usage())
        except Exception as error:
            yield form.failed(errors.of(error))

    def _chunks(self, news: News) -> list[dict[str, Any]]:
        if news.result is not None:
            return self._writer.end(news.choice, news.result)
        chunk = self._writer.tokens(news.choice, news.events)
        return [] if chunk is None else [chunk]


@asynccontextmanager
async def _watched(receive: Receive, ticket: Ticket) -> AsyncIterator[None]:
    """Cancel a request whose client leaves meanwhile."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        ticket.leave()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def unless_left(request: Request, ticket: Ticket) -> list[News]:
    """Return the next news; none if the client leaves first."""
    async with _watched(request.receive, ticket):
        return await ticket.take()


async def all_of(request: Request, ticket: Ticket) -> list[Generation]:
    """Return the finished texts of a request.

    Raises:
        ClientDisconnect: its client has left.

    """
    results = []
    async with _watched(request.receive, ticket):
        try:
            while news := await ticket.take():
                results += [item.result for item in news if item.result is not None]
        finally:
            ticket.leave()
    if len(results) < len(ticket.works):
        raise ClientDisconnect
    return results
