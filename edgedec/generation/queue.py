"""The order in which a pipeline decodes its texts: first come, first served, round by round.

Lines are ordered dictionaries, whose single operations are atomic, and turns are announced by
releasing plain locks. So any of it may run in a signal handler, or when the garbage collector ends
a text, at whatever point a thread is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, Protocol

from edgedec.decoding.request import Request
from edgedec.errors import StateError


class Ticket:
    """A position in a line.

    Args:
        on_call: called in any thread when the turn has come or the wait is to end; rarely twice.

    Attributes:
        owner: the thread that waits or has its turn; None if the text goes on without its reader.
        called: whether the wait has been ended.

    """

    __slots__ = ("_gate", "_on_call", "called", "owner")

    def __init__(self, on_call: Callable[[], object] | None = None) -> None:
        self.owner: int | None = None
        self.called = False
        self._on_call = on_call
        self._gate = threading.Lock()
        self._gate.acquire()

    def call(self) -> None:
        """End the wait for the turn; called any number of times, before it or after it."""
        if self.called:
            return
        self.called = True
        with suppress(RuntimeError):  # another thread called it at the same moment
            self._gate.release()
        if self._on_call is not None:
            self._on_call()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the ticket is called, at most this long."""
        longest = threading.TIMEOUT_MAX
        self._gate.acquire(timeout=-1 if seconds is None else min(max(seconds, 0), longest))


class Line:
    """Tickets in the order in which they came; the first ``count`` of them have their turn."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.tickets: dict[Ticket, None] = {}

    def __len__(self) -> int:
        """Return the number of tickets, those that have their turn included."""
        return len(self.tickets)

    def join(self, ticket: Ticket) -> None:
        """Put a ticket at the end of the line."""
        self.tickets[ticket] = None
        self.call_first()

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of the line, if it is there; those after it move up."""
        self.tickets.pop(ticket, None)
        self.call_first()

    def has_turn(self, ticket: Ticket) -> bool:
        if len(self.tickets) <= self.count:
            return ticket in self.tickets
        return ticket in list(self.tickets)[: self.count]

    def call_all(self) -> None:
        """End every wait."""
        for ticket in list(self.tickets):
            ticket.call()

    def would_wait_forever(self) -> bool:
        """Return whether only this thread, and others that wait here, could end a turn."""
        tickets = list(self.tickets)
        waiting = {ticket.owner for ticket in tickets[self.count :]} - {None}
        waiting.add(threading.get_ident())
        return all(ticket.owner in waiting for ticket in tickets[: self.count])

    def call_first(self) -> None:
        """Tell those that have their turn, of which some may know."""
        # A ticket only ever moves up, so one that was among the first has its turn.
        for ticket in list(self.tickets)[: self.count]:
            ticket.call()

    def enter(self, ticket: Ticket, *, wait: bool = True, seconds: float | None = None) -> None:
        """Join the line and wait for the turn, for at most this long.

        Raises:
            StateError: there is no turn now and ``wait`` is false, or the wait would never end.

        """
        try:
            self.join(ticket)
            if self.has_turn(ticket):
                ticket.owner = threading.get_ident()
                return
            if not wait or self.would_wait_forever():
                raise busy()
            # Others that would wait for this thread see it from here on.
            ticket.owner = threading.get_ident()
            if self.would_wait_forever() and not self.has_turn(ticket):
                raise busy()
            ticket.wait(seconds)
        except BaseException:
            self.leave(ticket)
            raise


class Turns(Protocol):
    """See ``turns.Turns``, which only asyncio's texts need."""

    def submit(self, text: Any) -> None: ...

    def close(self) -> None: ...


class Queue:
    """The lines of a pipeline's texts, and the thread that decodes those of asyncio programs.

    Args:
        places: texts that may be decoded at the same time, by turns.

    Attributes:
        closed: whether texts are refused.
        forked: whether this process was forked from the one that opened the pipeline.

    """

    def __init__(self, places: int) -> None:
        self.places, self.rounds = Line(places), Line(1)
        self.closed = self.forked = False
        self._lock = threading.RLock()
        self._turns: Turns | None = None

    def check_open(self) -> None:
        """Raise StateError if the pipeline is closed, or was opened before a fork."""
        if self.forked:
            raise StateError(
                "the pipeline was opened before this process was forked, and a fork has none of its"
                " threads: start processes by spawn, or open one here"
            )
        if self.closed:
            raise StateError("the pipeline is closed: open a new one")

    def submit(self, text: object, begin: Callable[[], Turns]) -> None:
        """Give turns to a text that has its place, in the thread of asyncio's texts.

        Args:
            text: see ``turns.Text``.
            begin: makes the turns of such texts, if this is the first.

        Raises:
            StateError: the pipeline is closed, or the interpreter ends.

        """
        with self._lock:
            self.check_open()
            if self._turns is None:
                self._turns = begin()
        try:
            self._turns.submit(text)
        except RuntimeError:
            raise StateError("the pipeline is closed: open a new one") from None

    def after_fork(self) -> None:
        """Refuse all texts from now on; threads that are gone may have held the locks."""
        self.places, self.rounds = Line(1), Line(1)
        self._lock, self._turns = threading.RLock(), None
        self.closed = self.forked = True

    def close(self) -> None:
        """End every wait with StateError, and the thread after its running round."""
        with self._lock:
            first, self.closed = not self.closed, True
        if first:  # who waits to close is not in line yet
            self.places.call_all()
            self.rounds.call_all()
        if self._turns is not None:
            self._turns.close()


class Round(Ticket):
    """A context: waits until no other thread decodes, and keeps them waiting meanwhile.

    A round of a text alone passes no line: it is noted as the only one, and nobody is told.

    Args:
        text: the ticket of the text, whose owner is the thread that runs its rounds.
        closing: also if the pipeline is closed, to release what it holds.

    Raises:
        StateError: on entry: this thread decodes already, or the pipeline is closed.

    """

    __slots__ = ("_closing", "_queue", "_text", "_ticket")

    def __init__(self, queue: Queue, text: Ticket | None = None, *, closing: bool = False) -> None:
        super().__init__()
        self.called = True  # it never waits: where others are, a new ticket does
        self._queue, self._text, self._closing = queue, text, closing
        self._ticket: Ticket = self

    def __enter__(self) -> None:
        queue, line, self._ticket = self._queue, self._queue.rounds, self
        self.owner = threading.get_ident()
        if self._text is not None:
            self._text.owner = self.owner
        try:
            if not line.tickets:
                line.tickets[self] = None
            if len(line.tickets) > 1 or self not in line.tickets:  # somebody else came
                line.leave(self)
                self._ticket = Ticket()
                line.enter(self._ticket)
            if queue.closed and not self._closing:
                queue.check_open()
        except BaseException:
            line.leave(self._ticket)
            raise

    def __exit__(self, *details: object) -> None:
        line = self._queue.rounds
        line.tickets.pop(self._ticket, None)
        if line.tickets:
            line.call_first()


def busy() -> StateError:
    """Return the error for a text that cannot begin while others are being decoded."""
    return StateError(
        "another text is being decoded: read its stream to the end or close() it first"
    )


class Place(Ticket):
    """One text's place among those that are decoded: taken before its first round.

    Args:
        wait: wait for a place; otherwise refuse the text if none is free.
    """

    __slots__ = ("_apart", "_queue", "_wait", "round")

    def __init__(self, queue: Queue, *, wait: bool = True) -> None:
        super().__init__()
        self._queue, self._wait, self._apart = queue, wait, False
        self.round = Round(queue, self)

    def reserve(self, on_call: Callable[[], object]) -> None:
        """Stand in the line without waiting, for a text that goes on without its reader.

        Args:
            on_call: called once, in any thread, when ``take`` would not wait any more.

        Raises:
            StateError: as ``take`` raises it.

        """
        self._on_call, self._apart, self.round = on_call, True, Round(self._queue)
        line = self._queue.places
        try:
            line.join(self)
            self._queue.check_open()
            if not line.has_turn(self) and (not self._wait or line.would_wait_forever()):
                raise busy()
        except BaseException:
            self.leave()
            raise

    def take(self, request: Request) -> bool:
        """Wait for the place; False if the request ended before, for ``request.stop.reason``.

        Raises:
            StateError: no place is free and the text does not wait, the places are held by streams
                that only this thread reads, or the pipeline is closed.

        """
        left = None if request.deadline is None else request.deadline - perf_counter()
        if self._apart:
            self.wait(left)
        else:
            self._queue.check_open()
            self._queue.places.enter(self, wait=self._wait, seconds=left)
        self._queue.check_open()
        if request.cancelled.is_set():
            request.stop.reason = "cancelled"
        elif not self._queue.places.has_turn(self):
            request.stop.reason = "timeout"
        return request.stop.reason is None

    def leave(self) -> None:
        """Give the place to the next text; called any number of times."""
        self._queue.places.leave(self)
