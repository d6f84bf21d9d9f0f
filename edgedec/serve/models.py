"""The models of a server: loaded when a request asks for one, dropped when none has for a while.

A request takes its model if that is loaded. Else it waits: models are loaded one at a time, in the
order in which they were asked for. Before one is loaded, those that were not used for longest are
dropped until there is memory for it; one that is decoding is not, but gets no new texts until the
other is loaded, so that neither waits for ever.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import time
from typing import Any

from edgedec._support.fields import one_line
from edgedec.errors import InputError, StateError
from edgedec.hardware.resident import resident_bytes
from edgedec.memory.grant import granting
from edgedec.pipeline import Pipeline
from edgedec.serve import keeping
from edgedec.serve.entry import Entry
from edgedec.serve.errors import ApiError, busy, ending
from edgedec.serve.model import Served
from edgedec.serve.offer import Offer
from edgedec.serve.room import Room
from edgedec.serve.settings import Settings
from edgedec.serve.shared import Shared
from edgedec.serve.turns import late

# Values of a body may be tokens of a model whose context is not known yet.
_LONGEST = 1 << 17
# Names in the error of a request for another one.
_NAMED = 12


class NotLoaded(Exception):
    """The model that a request asks for is not loaded, or is about to be dropped."""


class Visit:
    """One request's use of a model.

    Args:
        came: whether it came before the server drained, so that it is decoded.

    Attributes:
        entry: the model that it asks for; None before that is known.
        served: it once it is loaded: it stays so until the request leaves.
        waited_s: seconds for which it waited for that.

    """

    def __init__(self, models: Models, *, came: bool) -> None:
        self._models, self.came = models, came
        self.entry: Entry | None = None
        self.served: Served | None = None
        self.waited_s = 0.0

    def take(self, name: str, keep_s: float | None = None) -> Served:
        """Return the model of this name; any thread may call.

        Args:
            name: which the request gives; "" if it gives none.
            keep_s: for how long it asks to keep the model; None if it does not say.

        Raises:
            NotLoaded: it is to be waited for first.
            ApiError: there is none of this name, or the server ends.

        """
        models = self._models
        if self.served is None:
            self.entry = models.find(name)
            models.check_ending(came=self.came)
            with self.entry.lock:
                if self.entry.served is not None and not self.entry.leaving:
                    self.entry.users += 1
                    self.served = self.entry.served
        if self.served is None:
            raise NotLoaded
        assert self.entry is not None
        self.entry.used = next(models.uses)
        self.entry.keep_s = models.settings.keep_s if keep_s is None else keep_s
        return self.served


class Models:
    """The models of a server.

    Args:
        offers: what it may load; the first answers requests that name none.
        memory: the limit that all of them are opened with, as ``OpenOptions`` has it.
        pipeline: the first one's, if it is open; it is then never dropped, and not closed here.
        read: returns the bytes that the process holds.

    Attributes:
        entries: the models, in this order.
        created: when the server started, in seconds since 1970.
        uses: counts the uses of models, so that it is known which was not used for longest.

    """

    def __init__(
        self,
        offers: Sequence[Offer],
        settings: Settings,
        memory: int | str | None = None,
        pipeline: Pipeline | None = None,
        read: Callable[[], int] = resident_bytes,
    ) -> None:
        self.settings, self.created = settings, int(time())
        granted = None if memory is None else granting(memory)
        self.entries = [Entry(one) for one in offers]
        self.shared = Shared(settings, granted, self._free)
        self.shared.longest = _LONGEST
        self.uses = itertools.count()
        self._coming = 0
        self._draining = self._ended = False
        self.room = Room(self.entries, self._new_served, self.unless_used, granted, read)
        if pipeline is not None:
            first = self.entries[0]
            first.served, first.stays = self._new_served(first, pipeline), True
            self.shared.longest = first.served.max_context
        self.shared.metrics.watch(
            lambda: sum(len(one.turns.running) for one in self.loaded),
            lambda: sum(len(one.turns.waiting) for one in self.loaded),
            lambda: len(self.loaded),
        )

    @classmethod
    def alone(
        cls, pipeline: Pipeline, settings: Settings, memory: int | str | None = None
    ) -> Models:
        """Return the models of a server of one that is open, and named in the settings."""
        offer = Offer(
            settings.name,
            lambda: pipeline,
            lambda: pipeline.pair.target,
            settings.aliases,
            settings.planning,
        )
        return cls([offer], settings, memory, pipeline)

    # -- what there is ---------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """Whether requests choose between models."""
        return not self.entries[0].stays

    @property
    def loaded(self) -> list[Served]:
        return [one.served for one in self.entries if one.served is not None]

    def find(self, name: str, *, strict: bool | None = None) -> Entry:
        """Return the model of a name, or the first if there is none.

        Args:
            strict: whether it must be a model's; None asks the settings. Of several it always must,
                unless it is "".

        Raises:
            ApiError: there is no model of this name.

        """
        strict = self.settings.strict if strict is None else strict
        for one in self.entries:
            if one.known_as(name):
                return one
        if not strict and not (name and self.several):
            return self.entries[0]
        there = [repr(one.offer.name) for one in self.entries[:_NAMED]]
        if len(self.entries) > _NAMED:
            there.append(f"{len(self.entries) - _NAMED} more")
        raise ApiError(
            404,
            f"model {one_line(name)}: this server has {', '.join(there)}",
            param="model",
            code="model_not_found",
        )

    def card(self, entry: Entry) -> dict[str, Any]:
        """Return a model as ``/v1/models`` lists it; one that is not loaded has no plan."""
        served, offer = entry.served, entry.offer
        facts = {"plan": None, "planning": offer.planning} if served is None else served.facts()
        more = {"loaded": served is not None} if self.several else {}
        return {
            "id": offer.name, "object": "model", "created": self.created, "owned_by": "edgedec",
            "edgedec": {**facts, **more},
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Return what the page shows while it is open."""
        granted, loaded = self.shared.granted, self.loaded
        return {
            "running": sum(len(one.turns.running) for one in loaded),
            "waiting": sum(len(one.turns.waiting) for one in loaded),
            "loaded": [one.settings.name for one in loaded],
            "memory_bytes": resident_bytes(),
            "memory_granted_bytes": None if granted is None else granted(),
        }

    def check_ready(self) -> None:
        """Check that a request for one of the models would be taken now.

        Raises:
            ApiError: all queues are full, the server is ending, or the only model is reloaded.

        """
        self.check_alive()
        self.check_ending(came=False)
        refusals = []
        for one in self.entries:
            try:
                if one.served is None:
                    self._check_queue(one)
                else:
                    one.served.check_ready()
            except ApiError as error:
                refusals.append(error)
            else:
                return
        raise refusals[0]

    def check_alive(self) -> None:
        """Check that texts can still be decoded; ApiError if a decoding thread has ended."""
        for one in self.loaded:
            one.turns.check_alive()

    # -- requests --------------------------------------------------------------------------------

    @contextmanager
    def visit(self) -> Iterator[Visit]:
        """Count a request from its arrival until it is submitted; in the event loop's thread."""
        one = Visit(self, came=not self._draining)
        self._coming += 1
        try:
            yield one
        finally:
            self._coming -= 1
            if one.served is not None and one.entry is not None:
                with one.entry.lock:
                    one.entry.users -= 1
                one.served = None
                self.room.settle(one.entry)

    async def wait(self, visit: Visit) -> None:
        """Wait until a request's model is loaded, and give it to the request.

        Raises:
            ApiError: too many wait for it, the request's time is over, or the server ends.
            EdgedecError: it cannot be loaded; says why.

        """
        entry, loop = visit.entry, asyncio.get_running_loop()
        assert entry is not None
        self._check_queue(entry)
        began, left_s = loop.time(), self.settings.limits.text_s - visit.waited_s
        future: asyncio.Future[Served] = loop.create_future()
        entry.queue[visit] = future
        self.room.want(entry)
        try:
            await asyncio.wait_for(asyncio.shield(future), left_s)
        except asyncio.TimeoutError:
            raise late() from None
        finally:
            visit.waited_s += loop.time() - began
            entry.queue.pop(visit, None)
            if not future.done():
                future.cancel()
                self.room.ring()
            elif not future.cancelled():
                future.exception()  # which was seen, if only by the loop

    async def given(self, visit: Visit, name: str) -> Served:
        """Return the model of a name, loaded; errors are those of ``find`` and ``wait``."""
        while True:
            try:
                return visit.take(name)
            except NotLoaded:
                await self.wait(visit)

    def unless_used(self, entry: Entry) -> Served | None:
        """Take a model that nobody uses off the list of those loaded, and return it."""
        with entry.lock:
            if not entry.unused or entry.stays:
                return None
            served, entry.served, entry.leaving = entry.served, None, False
            return served

    # -- the end ---------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True while no request takes turns, waits or is being read."""
        return not self._coming and all(one.turns.idle for one in self.loaded)

    def drain(self) -> None:
        """Turn away requests that come; those that have come go on. Signal handlers may call."""
        self._draining = True

    def end(self) -> None:
        """Refuse requests from now on, those that wait included; texts go on."""
        self._ended = True
        self.shared.end()
        self.room.end()
        for one in self.loaded:
            one.end()

    def end_texts(self) -> None:
        for one in self.loaded:
            one.turns.end(at_once=True)

    def close(self) -> None:
        """End all texts and threads, and close what was opened here."""
        self.end()
        self.room.close()
        for one in self.loaded:
            one.close()
        self.shared.reader.join()

    def check_ending(self, *, came: bool) -> None:
        """Raise ApiError if the server ends, unless a request came before it drained."""
        if self._ended or (self._draining and not came):
            raise ending()

    def _check_queue(self, entry: Entry) -> None:
        if len(entry.queue) >= self.settings.parallel + self.settings.queue:
            raise busy(f"{len(entry.queue)} requests wait for this model: try again later", 5)

    def _new_served(
        self,
        entry: Entry,
        pipeline: Pipeline,
        relieve: Callable[[], bool] = lambda: False,
        rested: Callable[[], None] = lambda: None,
    ) -> Served:
        offer, entry.keep_s = entry.offer, self.settings.keep_s
        own = replace(
            self.settings, name=offer.name, aliases=offer.aliases, planning=offer.planning
        )
        served = Served(pipeline, own, self.shared, relieve, rested)
        self.shared.longest = max(self.shared.longest, served.max_context)
        return served

    def _free(self) -> list[int | None]:
        """Return what each model leaves free of the memory that all may hold."""
        found: list[int | None] = []
        for one in self.loaded:
            try:
                found.append(one.pipeline.free_bytes())
            except StateError:  # it is being dropped
                continue
        return found or [self.room.free_bytes()]


def name_of(fields: dict[str, Any]) -> str:
    """Return the model that a request names; "" if none. ApiError if it is not a string."""
    name = fields.get("model") or ""
    if not isinstance(name, str):
        raise ApiError(400, "model: expected a name", param="model")
    return name


def keep_of(fields: dict[str, Any]) -> float | None:
    """Remove ``keep_alive`` from a request and return it in seconds; None if it does not say."""
    given = fields.pop("keep_alive", None)
    try:
        return None if given in (None, "") else keeping.seconds(given)
    except InputError as error:
        raise ApiError(400, str(error), param="keep_alive") from None
