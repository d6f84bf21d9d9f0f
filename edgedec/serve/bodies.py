"""Receives the bodies of requests; what all of them hold together is limited.

A body that stays unfinished holds memory for as long as its client likes. So at the limit the one
that has been coming for longest gives way, and a client that sends what it has is not turned away,
unless the bodies that wait to be parsed leave too little for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from edgedec.serve.errors import UNAVAILABLE, ApiError, ending
from edgedec.serve.settings import Limits


@dataclass(eq=False, slots=True)
class _Coming:
    """A body that is on its way: its bytes so far, and the error that ended it."""

    task: asyncio.Task[bytearray] | None = None
    held: int = 0
    error: ApiError | None = None


class Bodies:
    """The bodies that are on their way or not parsed yet.

    Args:
        limits: of a body.
        most: bytes of all of them.

    """

    def __init__(self, limits: Limits, most: int) -> None:
        self._limits, self._most = limits, max(most, limits.body_bytes)
        self._held = self._unparsed = 0
        self._coming: dict[_Coming, None] = {}  # the oldest first

    async def receive(self, request: Request) -> bytearray:
        """Return the body of a request.

        Raises:
            ApiError: it is too large, too late, or gave way to others.

        """
        one = _Coming()
        one.task = asyncio.create_task(self._read(request, one))
        self._coming[one] = None
        try:
            return await asyncio.wait_for(one.task, self._limits.body_s)
        except asyncio.TimeoutError:
            raise ApiError(408, "the request came too slowly: send it again") from None
        except asyncio.CancelledError:
            if one.error is not None:
                raise one.error from None
            raise
        finally:
            self._coming.pop(one, None)
            self._held -= one.held

    @contextmanager
    def counted(self, raw: bytearray) -> Iterator[None]:
        """Count a received body until it is parsed."""
        self._held += len(raw)
        self._unparsed += len(raw)
        try:
            yield
        finally:
            self._held -= len(raw)
            self._unparsed -= len(raw)

    def close(self) -> None:
        """Turn away what is still on its way."""
        while self._coming:
            self._end_oldest(ending())

    async def _read(self, request: Request, one: _Coming) -> bytearray:
        raw, most = bytearray(), self._limits.body_bytes
        too_large = ApiError(413, f"the body: expected at most {most} bytes")
        declared = int(request.headers.get("content-length", 0))
        if declared > most:
            raise too_large
        try:
            async for chunk in request.stream():
                if len(raw) + len(chunk) > most:
                    raise too_large
                raw += chunk
                one.held += len(chunk)
                self._held += len(chunk)
                while self._held > self._most and self._coming:
                    if self._unparsed + max(declared, one.held) > self._most:
                        raise _full()  # whoever gives way
                    self._end_oldest(_full())
        except BaseException:
            raw.clear()  # the error's traceback may keep it for long
            raise
        return raw

    def _end_oldest(self, error: ApiError) -> None:
        oldest = next(iter(self._coming))
        del self._coming[oldest]
        self._held -= oldest.held
        oldest.held, oldest.error = 0, error
        if oldest.task is not None:
            oldest.task.cancel()


def _full() -> ApiError:
    return ApiError(
        503, "the bodies of other requests fill the server's memory: send it again later",
        kind=UNAVAILABLE, code="insufficient_memory", retry_s=5,
    )  # fmt: skip
