"""Texts under asyncio: decoded in a thread of the pipeline, read by tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter

from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics
from edgedec.generation.queue import Place, Queue
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream

# Returns the stream of a text that has this place; raises what is wrong with the request.
Begin = Callable[[Place], Stream]


class AsyncStream(AsyncIterator[Emission]):
    """Events of one generation as they come, for a task; ``result`` is set when it has ended.

    ::

        async with pipeline.astream("def fibonacci(n):") as stream:
            async for event in stream:
                print(event.text, end="")

    The text joins the queue when the first event is requested, and goes on from then whether or
    not its events are read: a slow reader keeps nobody waiting. It ends early if a task that waits
    for an event is cancelled, if the ``async with`` block ends, by ``aclose``, and when nothing
    refers to the stream any more. The pipeline is then ready for the next text.

    """

    def __init__(self, begin: Begin, queue: Queue, *, wait: bool) -> None:
        self._text = _Text(begin, queue, wait=wait)

    @property
    def result(self) -> Generation | None:
        """The generation; None before its end, and if it was left early."""
        return self._text.result

    @property
    def metrics(self) -> Metrics | None:
        """Figures of the generation so far; None before it has begun."""
        return None if self._text.stream is None else self._text.stream.metrics

    async def __anext__(self) -> Emission:
        try:
            return await self._text.next()
        except asyncio.CancelledError:
            self._text.leave()
            raise

    def cancel(self) -> None:
        """End the generation after the current pass, with reason ``cancelled`` and a result."""
        self._text.cancel()

    async def aclose(self) -> None:
        """Leave the generation: no further events, and no result if there is none yet.

        Waits for the running pass; the place is then free.
        """
        self._text.leave()
        await self._text.left()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._text.leave()
        if kind is not GeneratorExit:  # of a task whose loop is gone, which can wait for nothing
            await self._text.left()

    def __del__(self) -> None:
        self._text.leave()


class _Text:
    """A text in the pipeline's thread, which alone calls ``_round``; the rest is the loop's."""

    def __init__(self, begin: Begin, queue: Queue, *, wait: bool) -> None:
        self.stream: Stream | None = None
        self.result: Generation | None = None
        self._begin, self._queue = begin, queue
        self._place = Place(queue, wait=wait)
        self._begun = self._ended = self._is_cancelled = self._is_left = False
        self._events: deque[Emission] = deque()
        self._error: BaseException | None = None
        # Set when something has arrived, when the place may be taken, and at the end.
        self._news, self._turn, self._end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def next(self) -> Emission:
        """Return the next event; StopAsyncIteration at the end."""
        if not self._begun:
            self._begun = True
            await self._start()
        while not self._events and not self._ended:
            self._news.clear()
            await self._news.wait()
        if self._events and not self._is_left:
            return self._events.popleft()
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    async def _start(self) -> None:
        """Join the queue, prepare the request in another thread, wait for the place, begin."""
        self._loop = asyncio.get_running_loop()
        begun = False
        try:
            self._place.reserve(self._call)
            self.stream = await self._loop.run_in_executor(None, self._begin, self._place)
            if self._is_cancelled:
                self.stream.cancel()
            await self._wait(self.stream.deadline)
            if not self._is_left:
                self._queue.submit(self._round)
                begun = True
        finally:
            if not begun:
                self._place.leave()
                self._arrive((), None, ended=True)

    async def _wait(self, deadline: float | None) -> None:
        if deadline is None:
            await self._turn.wait()
            return
        timer = self._loop.call_later(max(0.0, deadline - perf_counter()), self._turn.set)
        try:
            await self._turn.wait()
        finally:
            timer.cancel()

    def cancel(self) -> None:
        """End the text after the current pass; from any thread, at any time."""
        self._is_cancelled = True
        if self.stream is not None:
            self.stream.cancel()

    def leave(self) -> None:
        """Have the text end without a result; from any thread, at any time."""
        self._is_left = True
        self.cancel()

    async def left(self) -> None:
        """Wait until the text that was left has ended."""
        if self._begun:
            await self._end.wait()

    def _call(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and has ended its tasks
            self._loop.call_soon_threadsafe(self._turn.set)

    def _round(self) -> None:
        """Run a round and tell the reader, then stand in line for the next one."""
        assert self.stream is not None
        events: Sequence[Emission] | None = None
        error: BaseException | None = None
        try:
            if not self._is_left:
                events = self.stream.turn()
            if events is not None and self._tell(events):
                self._queue.submit(self._round)
                return
        except BaseException as raised:
            error = raised
        self.stream.close()
        self._place.leave()
        self._tell((), error, ended=True)

    def _tell(
        self, events: Sequence[Emission], error: BaseException | None = None, *, ended: bool = False
    ) -> bool:
        """Tell the loop's thread; return whether the loop is still there."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(partial(self._arrive, events, error, ended=ended))
            return True
        return False

    def _arrive(
        self, events: Sequence[Emission], error: BaseException | None, *, ended: bool
    ) -> None:
        self._events.extend(events)
        if ended:
            self._ended, self._error = True, error
            if self.stream is not None and not self._is_left:
                self.result = self.stream.result
            self._end.set()
        self._news.set()
