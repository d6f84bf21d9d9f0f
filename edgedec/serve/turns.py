"""The texts of a server: they take turns or wait, and carry their tokens to the clients."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from edgedec.decoding.constraint import Constraint
from edgedec.decoding.emission import Emission
from edgedec.errors import EdgedecError, MemoryBudgetError
from edgedec.generation import turns
from edgedec.generation.options import GenerateOptions
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream
from edgedec.generation.turns import within
from edgedec.pipeline import Pipeline
from edgedec.serve.errors import ApiError, busy, ending, stopped
from edgedec.serve.settings import Settings

_log = logging.getLogger("edgedec")
# Prior of a request's seconds of turns, and the weight of the latest one.
_GUESS_S, _SHARE = 2.0, 0.2
_LONGEST_WAIT_S = 60
# Until a text may be sent again that memory does not hold, though it held the whole context once.
_SHORT_S = 5
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


class Ticket(turns.Text):
    """The texts of one request, decoded one after another; beyond a number unread they end.

    Args:
        timeout_s: seconds until all of it must be done.
        most_unread: tokens that the client may leave unread; None is any number.
        owner: see ``GenerateOptions``; with ``Settings.private`` there is none.

    Attributes:
        began: when it was made, on the clock of ``perf_counter``.
        choice: the number of the text that is being decoded.
        first_at, last_at: when its first and its latest tokens came; None before.

    """

    begins_again = True
    turns: Turns

    def __init__(
        self,
        works: Sequence[Work],
        *,
        timeout_s: float,
        most_unread: int | None = None,
        owner: str = "",
    ) -> None:
        super().__init__()
        self.works = works
        self.began = perf_counter()
        self.deadline = self.began + timeout_s
        self.choice = 0
        self.first_at: float | None = None
        self.last_at: float | None = None
        self._most_unread, self._owner = most_unread, owner
        self._loop = asyncio.get_running_loop()
        self._took_at = 0.0
        # Whether the client waits for any news; else it comes back by itself, or at the end.
        self._eager = False
        self._sent = threading.Event()

    # -- the decoding thread's side --------------------------------------------------------------

    def begin(self) -> Stream:
        if self.stream is None:
            left_s = self.deadline - perf_counter()
            if left_s <= 0:
                raise late()
            work, pipeline = self.works[self.choice], self.turns.pipeline
            owner = work.options.owner if work.options.owner is None else self._owner
            if self.turns.settings.private:
                pipeline.forget()
                owner = None
            options = dataclasses.replace(work.options, timeout_s=left_s, owner=owner)
            self.stream = pipeline.stream(work.prompt, options)
        return self.stream

    def unread(self) -> int:
        prompt, pool = self.works[self.choice].prompt, self.turns.pipeline.engine.pool
        shared = 0 if self.turns.settings.private else pool.shared_prefix(prompt)
        return max(0, len(prompt) - 1 - shared)

    def put(self, events: Sequence[Emission]) -> bool:
        """Take the tokens of a round; end the texts if the client leaves too many unread."""
        first, self.last_at = self.first_at is None, perf_counter()
        self.first_at = self.first_at or self.last_at
        self.tell(News(self.choice, events))
        if first and self._most_unread is not None:
            self._sent.wait(_SENDING_S)  # leaves the processor to those who send
        return True

    def done(self, result: Generation) -> bool:
        self.turns.finished(self, result)
        self.tell(News(self.choice, result=result))
        self.choice, self.first_at = self.choice + 1, None
        return self.choice < len(self.works) and not self.left

    def tell(self, news: News) -> None:
        with self._lock:
            self._news.append(news)
            unread = sum(len(one.events) for one in self._news)
        if self._most_unread is not None and unread > self._most_unread:
            why = f"the client left {unread} tokens unread: read the stream as it comes"
            self.fail(ApiError(408, why, code="slow_reader"))
        if self._eager:
            self._tell()

    def fail(self, error: Exception) -> None:
        """End with an error, after the news so far; from any thread."""
        self._error, self._ended = self._error or error, True
        self.left = True
        self._tell()

    def end(self, error: BaseException | None = None) -> None:
        if isinstance(error, MemoryBudgetError):  # it does not fit alone, though it did once
            error = ApiError(503, str(error), code="insufficient_memory", retry_s=_SHORT_S)
        elif error is not None and not isinstance(error, (EdgedecError, ApiError)):
            _log.error("a request failed", exc_info=error)
        super().end(error)

    # -- the client's side -----------------------------------------------------------------------

    async def take(self) -> list[News]:
        """Wait for news and return all there are; none at the end.

        The first come at once, later ones at most sixty times a second, the last at once.

        Raises:
            Exception: what ended the texts, once all news before it were taken.

        """
        await self._pause()
        self._eager = True
        news = await super().take()
        self._eager, self._took_at = False, perf_counter()
        return news

    def sent(self) -> None:
        """Note that news are on their way to the client."""
        self._sent.set()

    async def _pause(self) -> None:
        left_s = self._took_at + _TOGETHER_S - perf_counter()
        if left_s <= 0 or self._ended:
            return
        self._arrived.clear()
        await within(self._arrived, left_s)

    def leave(self) -> None:
        super().leave()
        self.sent()


class Turns(turns.Turns["Ticket"]):
    """Owner of a pipeline, which is used in its thread alone.

    Args:
        pipeline: opened with ``parallel``.
        settings: say how many requests are decoded by turns, and how many may wait.
        finished: called in the thread with each finished text.
        settled: waits for memory that is about to be given back; returns whether any was.
        rested: called in the thread when the last request has ended.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        finished: Callable[[Ticket, Generation], None] = lambda ticket, result: None,
        settled: Callable[[], bool] = lambda: False,
        rested: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("edgedec-turns", settings.parallel, settled)
        self.pipeline, self.settings = pipeline, settings
        self.finished, self._rested = finished, rested
        self._usual_s = _GUESS_S

    @property
    def idle(self) -> bool:
        """True while no request takes turns or waits."""
        with self._lock:  # a request on its way from one to the other counts
            return not (self.running or self.waiting)

    def submit(self, ticket: Ticket) -> None:
        """Have a request decoded that was checked when it came.

        Raises:
            ApiError: too many are waiting, or the server is shutting down.

        """
        self.check()
        ticket.turns = self
        super().submit(ticket)

    def check(self) -> None:
        """Refuse a request that could not be submitted now; called from any thread.

        Raises:
            ApiError: too many are waiting, the server is shutting down, or decoding has stopped.

        """
        if self._ending:
            raise ending()
        ahead = len(self.waiting) + len(self.running)
        if ahead >= self.settings.parallel + self.settings.queue:
            retry_s = max(1, min(_LONGEST_WAIT_S, round(self._usual_s * ahead)))
            raise busy(f"{len(self.waiting)} requests are waiting: try again later", retry_s)

    def check_alive(self) -> None:
        """Check that texts can still be decoded; ApiError if not."""
        if self.broken:
            raise stopped()

    def end(self, *, at_once: bool = False) -> None:
        """Turn away requests that wait and that come; end the running ones only if ``at_once``."""
        with self._lock:
            self._ending = True
            ended = [*self.waiting, *(self.running if at_once else ())]
            self.waiting.clear()
        for ticket in ended:
            ticket.fail(ending())

    def close(self) -> None:
        """End all texts, and the thread."""
        self.end(at_once=True)
        super().close()

    def leave(self, text: Ticket) -> None:
        if text.choice == len(text.works):
            self._usual_s += _SHARE * (text.spent_s - self._usual_s)
        super().leave(text)
        if self.idle:
            self._rested()


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
        504, "the request timed out while it was queued: try again later",
        code="timeout", retry_s=10,
    )  # fmt: skip
