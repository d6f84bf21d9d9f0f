"""What all models of a server share: its settings, the reading of bodies, figures, memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from edgedec._support.amounts import megabytes
from edgedec.hardware.resident import release_free
from edgedec.memory.grant import spare
from edgedec.serve.body import MOST_VALUES, parsed
from edgedec.serve.errors import ApiError, ending
from edgedec.serve.lane import Lane
from edgedec.serve.metrics import ServerMetrics
from edgedec.serve.settings import Limits, Settings

T = TypeVar("T")
# Most memory that a byte of JSON becomes: text twice, of up to four bytes a character, and parts.
_PARSED = 12
# Bytes of all bodies, where --memory does not say how many there may be.
_BODIES = 64 << 20


class Shared:
    """What all models of a server share.

    Args:
        granted: returns the bytes that the process may hold; None without a limit.
        free: returns the bytes of it that each model leaves free; None without a limit.

    Attributes:
        longest: tokens of the longest context, in which a body's values may be tokens.

    """

    def __init__(
        self,
        settings: Settings,
        granted: Callable[[], int] | None,
        free: Callable[[], Iterable[int | None]],
    ) -> None:
        self.settings, self.granted, self._free = settings, granted, free
        self.metrics = ServerMetrics(granted)
        self.bodies = Bodies(settings.limits, _BODIES if granted is None else spare(granted()))
        # Reads what takes more than a moment; the bytes that wait for it count as bodies.
        self.reader = Lane("reader")
        self.longest = 0

    def end(self) -> None:
        """Turn away what is being read."""
        self.bodies.close()
        self.reader.close()

    def read_long(self, raw: bytearray, use: Callable[[dict[str, Any]], T]) -> T:
        """Return what becomes of a long body, without its memory; in the reader's thread."""
        self.check_room(_PARSED * len(raw))
        try:
            return use(parsed(raw, MOST_VALUES + self.settings.limits.choices * self.longest))
        finally:
            release_free()

    def check_room(self, needed: int) -> None:
        """Refuse to take memory that the texts may need.

        Raises:
            ApiError: fewer than these bytes are free.

        """
        free = self._least_free()
        if free is not None and free < needed:
            release_free()
            free = self._least_free()
        if free is not None and free < needed:
            raise ApiError(
                503,
                f"reading this request takes {megabytes(needed)} MB, and {megabytes(max(0, free))}"
                " MB are free: shorten it, send it again later, or give the server more --memory",
                code="insufficient_memory",
                retry_s=5,
            )

    def _least_free(self) -> int | None:
        return min((one for one in self._free() if one is not None), default=None)


@dataclass(eq=False, slots=True)
class _Coming:
    """A body that is on its way: its bytes so far, and the error that ended it."""

    task: asyncio.Task[bytearray] | None = None
    held: int = 0
    error: ApiError | None = None


class Bodies:
    """The bodies that are on their way or not parsed yet; what all of them hold is limited.

    A body that stays unfinished holds memory for as long as its client likes. So at the limit the
    one that has been coming for longest gives way, and a client that sends what it has is not
    turned away, unless the bodies that wait to be parsed leave too little for it.

    Args:
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
        code="insufficient_memory", retry_s=5,
    )  # fmt: skip
