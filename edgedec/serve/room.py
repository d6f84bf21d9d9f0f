"""Loads and drops the models of a server, within its memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from functools import partial
from typing import Any

from edgedec._support.fields import one_line
from edgedec.errors import EdgedecError, MemoryBudgetError
from edgedec.hardware.resident import release_free
from edgedec.pipeline import Pipeline
from edgedec.serve.entry import Entry
from edgedec.serve.errors import ApiError, ending
from edgedec.serve.keeping import FOR_EVER
from edgedec.serve.lane import Lane
from edgedec.serve.model import Served

# A text that memory does not hold looks this often whether its request is still wanted.
_WAITED_S, _POLL_S = 10.0, 0.5


# Makes an open pipeline a served model. The callables free memory for a text, and are called after
# its last text.
Serving = Callable[[Entry, Pipeline, Callable[[], bool], Callable[[], None]], Served]


class Room:
    """Loads and drops models; all but ``relieve`` is for the event loop's thread.

    Args:
        serving: makes a served model of a pipeline.
        unless_used: takes a model that nobody uses off the list of those loaded; None if it is
            used.
        granted: returns the bytes that the process may hold; None without a limit.
        read: returns those that it holds.

    """

    def __init__(
        self,
        entries: Sequence[Entry],
        serving: Serving,
        unless_used: Callable[[Entry], Served | None],
        granted: Callable[[], int] | None,
        read: Callable[[], int],
    ) -> None:
        self._entries, self._serving, self._unless_used = entries, serving, unless_used
        self._granted, self._read = granted, read
        # Models are opened and closed in a thread of its own, beside decoding.
        self._lane = Lane("models")
        self._gate = asyncio.Lock()  # of whoever loads or drops one
        self._bell = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[Served, None] = {}
        self._short: set[Entry] = set()  # whose texts wait for memory
        self._loop: asyncio.AbstractEventLoop | None = None  # once a model was loaded

    def free_bytes(self) -> int | None:
        """Return the bytes that the process may still take; None without a limit."""
        return None if self._granted is None else self._granted() - self._read()

    def ring(self) -> None:
        """Wake those who wait until models, or requests for them, have changed."""
        self._bell.set()
        self._bell = asyncio.Event()

    # -- loading ---------------------------------------------------------------------------------

    def want(self, entry: Entry) -> None:
        """Load a model for the requests in its queue, unless that is under way."""
        self._loop = asyncio.get_running_loop()
        if not entry.working:
            entry.working = True
            self._begin(self._load(entry))

    def _begin(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(step)
        self._tasks.add(task)  # which the loop alone would not keep
        task.add_done_callback(self._tasks.discard)

    async def _load(self, entry: Entry) -> None:
        """Give the requests that wait for a model that model, or the reason why they cannot."""
        try:
            async with self._gate:
                if entry.served is None and entry.queue:
                    await self._make_room(entry)
                    entry.served, entry.shown = await self._opened(entry), None
                if entry.served is not None:
                    self._answer(entry, entry.served)
        except Exception as error:
            self._answer(entry, _refusal(entry, error))
        finally:
            entry.working = False
            for one in self._entries:
                one.leaving = False
            self.ring()
            self.settle(entry)

    def _answer(self, entry: Entry, what: Served | Exception) -> None:
        queue, entry.queue = entry.queue, {}
        for visit, future in queue.items():
            if future.done():
                continue
            if isinstance(what, Exception):
                future.set_exception(what)
                continue
            with entry.lock:
                entry.users += 1  # until the request leaves
            visit.served = what
            future.set_result(what)

    async def _make_room(self, entry: Entry) -> None:
        """Drop others until about as much memory is free as a model needs."""
        self._check_refused(entry)
        needed = await self._lane.run(entry.needed)
        while (free := self.free_bytes()) is not None and free < needed:
            if not await self._drop_another(entry):
                return  # opening it says what it needs

    async def _opened(self, entry: Entry) -> Served:
        while True:
            others = any(one.served is not None for one in self._entries)
            free = self.free_bytes() or 0
            try:
                return await self._lane.run(partial(self._open_it, entry, beside=others))
            except MemoryBudgetError as error:
                entry.taken = max(entry.taken, free + 1)  # so much was not enough
                if not await self._drop_another(entry):
                    if self._granted is not None:
                        entry.refused = self._granted(), error
                    raise

    def _check_refused(self, entry: Entry) -> None:
        """Refuse a model that was too large alone before others are dropped for it once more."""
        if entry.refused is not None and self._granted is not None:
            granted, error = entry.refused
            if self._granted() <= granted:
                raise error

    def _open_it(self, entry: Entry, *, beside: bool) -> Served:
        """Open a model; in the thread of the models.

        Raises:
            MemoryBudgetError: memory does not hold it, or too little of its context beside others.
            EdgedecError: it cannot be opened.

        """
        before = self._read()
        pipeline = entry.offer.open()
        capacity = pipeline.engine.target.capacity
        if beside and capacity < entry.least_context():
            pipeline.close()
            raise MemoryBudgetError(f"beside other models it has a context of {capacity} tokens")
        entry.held = max(0, self._read() - before)
        entry.taken = max(entry.taken, entry.held)
        relieve, rested = partial(self._relieve, entry), partial(self._rested, entry)
        served = self._serving(entry, pipeline, relieve, rested)
        self._open[served] = None
        return served

    def _rested(self, entry: Entry) -> None:
        """Note that a model's last text has ended; in its decoding thread."""
        assert self._loop is not None, "it was loaded"
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.settle, entry)

    # -- dropping --------------------------------------------------------------------------------

    def settle(self, entry: Entry) -> None:
        """Have a model dropped in time, if nobody uses it now."""
        self.ring()
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        if self._lane.closed or entry.stays or not entry.unused:
            return
        loop = asyncio.get_running_loop()
        entry.until = loop.time() + entry.keep_s
        if entry.keep_s != FOR_EVER:
            entry.timer = loop.call_later(entry.keep_s, lambda: self._begin(self._expire(entry)))

    async def _expire(self, entry: Entry) -> None:
        with suppress(ApiError):  # the server ends
            async with self._gate:
                if entry.until <= asyncio.get_running_loop().time():
                    await self._drop(entry)

    async def _drop_another(self, entry: Entry) -> bool:
        """Drop the model that was not used for longest; wait for its texts if all have some.

        Returns:
            whether there was one.

        Raises:
            ApiError: nobody waits for this model any longer.

        """
        while True:
            others = [one for one in self._entries if one.served is not None and one is not entry]
            for one in sorted(others, key=lambda one: (not one.unused, one.used)):
                if await self._drop(one):
                    return True
            if not others:
                return False
            if not entry.queue:
                raise ending()  # which nobody reads
            min(others, key=lambda one: one.used).leaving = True
            await self._bell.wait()

    async def _drop(self, entry: Entry) -> bool:
        """Close a model, unless it is used; return whether it was closed."""
        served = self._unless_used(entry)
        if served is None:
            return False
        await self._lane.run(partial(self._close, served))
        self.ring()
        return True

    def _close(self, served: Served) -> None:
        """Close a model and give its memory back; in the thread of the models."""
        self._open.pop(served, None)
        served.close()
        served.pipeline.close()
        del served
        gc.collect()
        release_free()

    # -- texts that memory does not hold ---------------------------------------------------------

    def _relieve(self, entry: Entry) -> bool:
        """Wait until other models give memory back to one's text; in its decoding thread.

        Returns:
            whether there may be more than before.

        """
        assert self._loop is not None, "it was loaded"
        if self._over():
            return False
        asked: Future[bool] = asyncio.run_coroutine_threadsafe(self._give_up_for(entry), self._loop)
        while not self._over():
            try:
                return asked.result(_POLL_S)
            except NotYet:
                continue
        asked.cancel()
        return False

    def _over(self) -> bool:
        return self._lane.closed

    async def _give_up_for(self, entry: Entry) -> bool:
        if entry.leaving:  # another model waits for it, after all others were dropped
            return False
        if not self._gate.locked():
            async with self._gate:
                idle = [one for one in self._entries if one is not entry and one.unused]
                for one in sorted(idle, key=lambda one: one.used):
                    if await self._drop(one):
                        return True
        others = [one for one in self._entries if one.served is not None and one is not entry]
        if not self._gate.locked() and all(one in self._short for one in others):
            return False  # each would wait for the other
        self._short.add(entry)
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._bell.wait(), _WAITED_S)
        finally:
            self._short.discard(entry)
        return True

    # -- the end ---------------------------------------------------------------------------------

    def end(self) -> None:
        """Turn away requests that wait for a model; nothing is loaded any more."""
        self._lane.close()
        for entry in self._entries:
            self._answer(entry, ending())

    def close(self) -> None:
        """Close all models that were opened here, after the step under way."""
        self._lane.join()
        for one in list(self._open):
            self._close(one)


def _refusal(entry: Entry, error: Exception) -> Exception:
    """Return the error of requests for a model that cannot be loaded; a fault stays as it is."""
    if isinstance(error, ApiError) or not isinstance(error, (EdgedecError, OSError)):
        return error
    short = isinstance(error, MemoryBudgetError)
    why = one_line(str(error))
    return ApiError(
        503,
        f"{entry.offer.name} cannot be loaded: {why}",
        code="insufficient_memory" if short else "model_not_loaded",
    )
