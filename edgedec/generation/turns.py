"""A thread that decodes texts by turns, and the order of these turns.

Every text has the same share of the time (start-time fair queueing): the next turn goes to the one
that has used least of its share. Texts whose prompts are being read put their shares together, at
least half of the time, and read one prompt after another: the shortest first, so that it does not
wait behind a long one. A prompt ages by the tokens that are read while it waits: prompts of similar
lengths are read by turns, and a long one is put off by about twice as many tokens as it has itself,
however many short ones come.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Any, Generic, TypeVar

from edgedec.errors import MemoryBudgetError
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream

_log = logging.getLogger("edgedec")


class Text:
    """Texts of one reader, a task, which are decoded in the thread of ``Turns`` one after another.

    The thread never waits for the task: news that it has not taken wait here.

    Attributes:
        stream: the text that is being decoded; None before it is begun.
        deadline: the time of ``perf_counter`` at which all must have ended.
        left: whether nobody reads them any more; they then end within a turn.
        to_read: tokens of the prompt that are left to read; None before that is known.
        length: tokens of the prompt that had to be read in all.
        overtaken: tokens of other prompts that were read while it waited to read its own.
        spent_s: seconds of its own turns.
        used_s: seconds of turns, its own and its part of the reading of others, beyond those of
            the texts that it met; None before its first turn.
        put_back: whether it waits for memory: nobody who comes later begins before it does.
        stood_back: whether another went first since memory did not hold it.

    """

    begins_again = False  # whether it may be put back once it was begun

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.deadline = math.inf
        self.left = self.put_back = self.stood_back = self._ended = False
        self.to_read: int | None = None
        self.length = self.overtaken = 0
        self.spent_s = 0.0
        self.used_s: float | None = None
        self._begun = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._news: list[Any] = []
        self._error: BaseException | None = None

    # -- the decoding thread's side --------------------------------------------------------------

    def begin(self) -> Stream:
        """Return the stream of the text whose turn it is."""
        assert self.stream is not None
        return self.stream

    def unread(self) -> int:
        """Return about how many tokens of its prompt are to be read."""
        return self.begin().prompt_tokens - 1

    def turn(self) -> tuple[bool, int]:
        """Run a round; return whether there is another one, and how much of the prompt it read."""
        stream = self.begin()
        events = stream.turn()
        if not self._begun:  # a session may hold less of the prompt than was thought
            self._begun, self.put_back = True, False
            self.to_read = self.length = stream.prompt_tokens - 1 - stream.metrics.reused_tokens
        left = stream.metrics.prefill_tokens_left
        read, self.to_read = (self.to_read or 0) - left, left
        if events is not None:
            return not events or self.put(events), read
        assert stream.result is not None
        self.stream, self.to_read, self.overtaken, self._begun = None, None, 0, False
        return self.done(stream.result), read

    def put(self, events: Sequence[Any]) -> bool:
        """Take the events of a round; return whether the text goes on."""
        with self._lock:
            self._news += events
        return self._tell()

    def done(self, result: Generation) -> bool:
        """Take a whole text; return whether another one follows."""
        return False

    def undo(self) -> bool:
        """Make it one that has not begun; False if it cannot be begun again."""
        stream = self.stream
        if not self.begins_again or (stream is not None and stream.metrics.emitted):
            return False
        self._close()
        self.to_read, self._begun = None, False
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Close the text, and have its reader get this error after the news so far."""
        self._close()
        self._error, self._ended = self._error or error, True
        self._tell()

    def _close(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

    def _tell(self) -> bool:
        """Wake the reader; return whether its loop is still there."""
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._arrived.set)
            return True
        return False

    # -- the task's side -------------------------------------------------------------------------

    async def take(self) -> list[Any]:
        """Wait for news and return all there are; none at the end.

        Raises:
            BaseException: what ended the text, once, when all news before it were taken.

        """
        while True:
            self._arrived.clear()
            ended = self._ended  # looked at first: news come before the end
            with self._lock:
                news, self._news = self._news, []
            if news:
                return news
            if ended:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                return []
            await self._arrived.wait()

    def leave(self) -> None:
        """Have the text end within a round; from any thread, at any time."""
        self.left = True
        stream = self.stream
        if stream is not None:
            stream.cancel()


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most this long."""
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


T = TypeVar("T", bound=Text)


class Turns(Generic[T]):
    """Decodes texts in a thread of its own, a round or a part of a prompt at a time.

    Args:
        most: texts that take turns; others wait in the order in which they came.
        settled: waits for memory that is about to be given back; returns whether any was.

    Attributes:
        running: those that take turns.
        broken: whether decoding has stopped by a fault.

    """

    def __init__(
        self, name: str, most: float = math.inf, settled: Callable[[], bool] = lambda: False
    ) -> None:
        self._most, self._settled = most, settled
        self.running: list[T] = []
        self.waiting: deque[T] = deque()
        self.broken = self._ending = False
        # True while a text waits for others to end, since memory does not hold all of them, and
        # until it has begun.
        self._full = False
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, text: T) -> None:
        """Have a text decoded; called from any thread.

        Raises:
            RuntimeError: the turns, or the interpreter, have ended.

        """
        with self._lock:
            self._pool.submit(self._work)
            self.waiting.append(text)

    def close(self) -> None:
        """Wait until all texts and the thread have ended."""
        self._pool.shutdown()

    def _work(self) -> None:
        """Give turns until no text is left; every submission starts this."""
        try:
            while self._admit():
                text = due(self.running)
                began, read = perf_counter(), bool(text.to_read)
                goes_on = self._turn(text)
                took_s = perf_counter() - began
                text.spent_s += took_s
                charge(self.running, text, took_s, read=read)
                if not goes_on:
                    self.leave(text)
        except BaseException:
            self.broken = True
            _log.exception("decoding has stopped")
            raise

    def _admit(self) -> bool:
        """Let texts in while there are places; return whether there are any."""
        with self._lock:
            while self.waiting and len(self.running) < self._most and not self._full:
                text = self.waiting.popleft()
                text.used_s = None
                self.running.append(text)
                # Those after it stay, or short ones would take the memory that it waits for.
                self._full = text.put_back
            return bool(self.running)

    def leave(self, text: T) -> None:
        """Note that a text has ended; in the thread."""
        with self._lock:
            self.running.remove(text)
            self._full = any(one.put_back for one in self.running)

    def _turn(self, text: T) -> bool:
        """Run a round of a text; return whether it goes on."""
        error: BaseException | None = None
        try:
            if not text.left:
                waited = text.put_back
                goes_on, read = text.turn()
                self._full = self._full and not waited
                age([one for one in self.running if one is not text], read)
                if goes_on:
                    return True
        except MemoryBudgetError as raised:
            if text.undo() and self._waits(text):
                return True
            error = raised
        except BaseException as raised:
            error = raised
        text.end(error)
        return False

    def _waits(self, text: T) -> bool:
        """Put a text back until another ends, since memory does not hold both; False if alone."""
        with self._lock:
            if len(self.running) > 1 and not self._ending:
                self.running.remove(text)
                self.waiting.appendleft(text)
                self._full = text.put_back = True
                return True
            if not (text.stood_back or self._ending) and self.waiting:
                # Another one goes before the only one that runs, once.
                text.stood_back, self._full = True, False
                self.running.remove(text)
                self.waiting.insert(1, text)
                return True
        return len(self.running) == 1 and self._settled()  # once more


def due(texts: Sequence[T]) -> T:
    """Return the text whose turn it is; first one that is to end, left or out of time."""
    if len(texts) == 1 and texts[0].to_read is not None:
        return texts[0]
    now = perf_counter()
    least_s = min((one.used_s for one in texts if one.used_s is not None), default=0.0)
    for text in texts:
        if text.used_s is None:
            text.used_s = least_s  # a newcomer starts at the smallest share used so far
        if text.to_read is None:
            text.to_read = text.length = text.unread()
        if text.left or now > text.deadline:
            return text
    begun = [text for text in texts if not text.to_read]
    reading = [text for text in texts if text.to_read]
    if not reading or (begun and min(map(_used_s, begun)) <= min(map(_used_s, reading))):
        return min(begun, key=_used_s)
    # Of equals, that of which less was read.
    return min(reading, key=lambda one: (one.length - one.overtaken, -(one.to_read or 0)))


def charge(texts: Sequence[Text], text: Text, seconds: float, *, read: bool) -> None:
    """Count a turn's time against the text that had it, or against all that are reading.

    Args:
        texts: those that take turns.
        read: whether it read a part of its prompt.

    """
    payers = [one for one in texts if one.to_read or one is text] if read else [text]
    # Half of the time goes to reading, however many texts have begun.
    parts = max(len(payers), len(texts) - len(payers)) if read else 1
    for one in payers:
        one.used_s = _used_s(one) + seconds / parts


def age(texts: Sequence[Text], read: int) -> None:
    """Note that this many tokens of another prompt were read while these waited to read theirs."""
    for text in texts:
        if text.to_read:
            text.overtaken += read


def _used_s(text: Text) -> float:
    return text.used_s or 0.0
