"""A request in progress: carries tokens from the decoding thread to its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from edgedec.decoding.constraint import Constraint
from edgedec.decoding.emission import Emission
from edgedec.generation.options import GenerateOptions
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream
from edgedec.serve.errors import UNAVAILABLE, ApiError

# Rounds that end within this time of each other, a frame of a screen, are sent together: each chunk
# takes processor time that decoding would use.
_TOGETHER_S = 1 / 60
# Longest wait for a first token to be sent. A round keeps every core busy, so that without a pause
# the thread that sends waits for the scheduler: 4 ms in the median, on two cores.
_SENDING_S = 0.002


@dataclass(slots=True)
class Work:
    """One text to decode.

    Attributes:
        prompt, options: of the text.
        prepared: what it must follow; keeps that compiled until the text begins.

    """

    prompt: Sequence[int]
    options: GenerateOptions
    prepared: Constraint | None = None


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened to one text of a request.

    Attributes:
        choice: which text, from 0.
        events: tokens of a round.
        result: the whole text, with its last news.

    """

    choice: int
    events: Sequence[Emission] = ()
    result: Generation | None = None


class Ticket:
    """The texts of one request, decoded one after another.

    The decoding thread never waits for the client: what it has not taken waits here, up to a number
    of tokens, beyond which the texts end.

    Args:
        works: what to decode.
        timeout_s: seconds until all of it must be done.
        most_unread: tokens that the client may leave unread; None is any number.

    Attributes:
        began: when it was made, on the clock of ``perf_counter``.
        stream: the text that is being decoded, set by the decoding thread.
        choice: its number.
        to_read: tokens of its prompt that are left to read; None before that is known.
        length: tokens of its prompt that had to be read in all.
        overtaken: tokens of other prompts that were read while it waited to read its own.
        spent_s: seconds of its own turns.
        used_s: seconds of turns, its own and its part of the reading of others, beyond those of
            the requests that it met; None before its first turn.
        put_back: whether it waits for memory: nobody who comes later begins before it does.
        stood_back: whether another went first since memory did not hold it.
        first_at, last_at: when its first and its latest tokens came; None before.

    """

    def __init__(
        self, works: Sequence[Work], *, timeout_s: float, most_unread: int | None = None
    ) -> None:
        self.works = works
        self.began = perf_counter()
        self.deadline = self.began + timeout_s
        self.stream: Stream | None = None
        self.choice = 0
        self.to_read: int | None = None
        self.length = self.overtaken = 0
        self.spent_s = 0.0
        self.used_s: float | None = None
        self.put_back = self.stood_back = False
        self.first_at: float | None = None
        self.last_at: float | None = None
        self._most_unread = most_unread
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._took_at = 0.0
        # Whether the client waits for any news; else it comes back by itself, or at the end.
        self._eager = False
        self._sent = threading.Event()
        self._lock = threading.Lock()
        self._news: list[News] = []
        self._unread = 0
        self._error: Exception | None = None
        self._ended = self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """True once its client has left."""
        return self._cancelled

    @property
    def unread(self) -> int:
        """Number of tokens that the client has not taken."""
        return self._unread

    # -- the decoding thread's side --------------------------------------------------------------

    def put(self, news: News) -> None:
        """Add news; end the texts if the client leaves too much unread."""
        with self._lock:
            self._news.append(news)
            self._unread += len(news.events)
            slow = self._most_unread is not None and self._unread > self._most_unread
        if slow:
            self.fail(
                ApiError(
                    408,
                    f"the client left {self._unread} tokens unread: read the stream as it comes",
                    code="slow_reader",
                )
            )
            self._cancelled = True
        if self._eager:
            self._tell()

    def put_first(self, news: News) -> None:
        """Add the first news of a text; leave the processor to those who send them to a reader."""
        self.put(news)
        if self._most_unread is not None:
            self._sent.wait(_SENDING_S)

    def fail(self, error: Exception) -> None:
        """End with an error, after the news so far."""
        self._error = self._error or error
        self.end()

    def end(self) -> None:
        """Say that nothing follows."""
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and so has the client
            self._loop.call_soon_threadsafe(self._arrived.set)

    # -- the client's side -----------------------------------------------------------------------

    async def take(self) -> list[News]:
        """Wait for news and return all there are; none at the end.

        The first come at once, later ones at most sixty times a second, the last at once.

        Raises:
            Exception: what ended the texts, once all news before it were taken.

        """
        await self._pause()
        while True:
            self._arrived.clear()
            self._eager = True
            with self._lock:
                news, self._news, self._unread = self._news, [], 0
            if news:
                self._eager, self._took_at = False, perf_counter()
                return news
            if self._error is not None:
                raise self._error
            if self._ended:
                return []
            await self._arrived.wait()

    def sent(self) -> None:
        """Note that news are on their way to the client."""
        self._sent.set()

    async def _pause(self) -> None:
        left_s = self._took_at + _TOGETHER_S - perf_counter()
        if left_s <= 0 or self._ended:
            return
        self._arrived.clear()
        timer = self._loop.call_later(left_s, self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()

    def cancel(self) -> None:
        """End the texts within a round; their client has left."""
        self._cancelled = True
        self.sent()
        stream = self.stream
        if stream is not None:
            stream.cancel()


def joined(news: Sequence[News]) -> list[News]:
    """Return the same news, with the rounds of each text in one."""
    found: list[News] = []
    for one in news:
        last = found[-1] if found else one
        if last is not one and last.choice == one.choice and not (last.result or one.result):
            found[-1] = News(one.choice, [*last.events, *one.events])
        else:
            found.append(one)
    return found


def late() -> ApiError:
    """Return the error of a request whose time was over before its turn came.

    Balancers send it to no other server, where it would wait as long again.
    """
    return ApiError(
        504, "the request timed out while it was queued: try again later", kind=UNAVAILABLE,
        code="timeout", retry_s=10,
    )  # fmt: skip
