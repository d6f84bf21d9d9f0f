"""Texts under asyncio: decoded in a thread of the pipeline, read by tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from time import perf_counter

from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics
from edgedec.generation.queue import Place, Queue
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream
from edgedec.generation.turns import Text, Turns, within

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
        return self._text.metrics

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
        await self._text.has_left()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._text.leave()
        if kind is not GeneratorExit:  # of a task whose loop is gone, which can wait for nothing
            await self._text.has_left()

    def __del__(self) -> None:
        self._text.leave()


class _Text(Text):
    """A text in the pipeline's thread, and the task that reads it."""

    def __init__(self, begin: Begin, queue: Queue, *, wait: bool) -> None:
        super().__init__()
        self.result: Generation | None = None
        self.metrics: Metrics | None = None
        self._begin, self._queue = begin, queue
        self._place = Place(queue, wait=wait)
        self._is_cancelled = False
        self._events: deque[Emission] = deque()
        self._turn = asyncio.Event()  # set when the place may be taken

    async def next(self) -> Emission:
        """Return the next event; StopAsyncIteration at the end."""
        if self._loop is None:
            await self._start()
        while not self._events:
            news = await self.take()
            if not news:
                raise StopAsyncIteration
            self._events += news
        if self.left:
            raise StopAsyncIteration
        return self._events.popleft()

    async def _start(self) -> None:
        """Join the queue, prepare the request in another thread, wait for the place, begin."""
        self._loop = asyncio.get_running_loop()
        begun = False
        try:
            self._place.reserve(self._call)
            stream = await self._loop.run_in_executor(None, self._begin, self._place)
            self.stream, self.metrics = stream, stream.metrics
            if self._is_cancelled:
                stream.cancel()
            if stream.deadline is None:
                await self._turn.wait()
            else:
                self.deadline = stream.deadline
                await within(self._turn, self.deadline - perf_counter())
            if not self.left:
                self._queue.submit(self, partial(Turns[Text], "edgedec-async"))
                begun = True
        finally:
            if not begun:
                self.end()

    def cancel(self) -> None:
        """End the text after the current pass; from any thread, at any time."""
        self._is_cancelled = True
        stream = self.stream
        if stream is not None:
            stream.cancel()

    def leave(self) -> None:
        self.left = True
        self.cancel()

    async def has_left(self) -> None:
        """Wait until the text that was left has ended."""
        while self._loop is not None and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()

    def _call(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and has ended its tasks
            assert self._loop is not None, "it has joined the queue"
            self._loop.call_soon_threadsafe(self._turn.set)

    def done(self, result: Generation) -> bool:
        self.result = None if self.left else result
        return False

    def _close(self) -> None:
        super()._close()
        self._place.leave()
