"""Which of several threads runs, in virtual time: one at a time, in an order that never varies."""

from __future__ import annotations

import threading
from collections import deque
from heapq import heappop, heappush

from edgedec.errors import Interrupted, StateError

_ROOT = "the caller"


class Permit:
    """A thread's right to run.

    Attributes:
        name: of its task.
        thread: the system's id of it.
        turn: how often it was put to sleep or woken.
        ready: it was woken, and is queued to run.
        slept: it was woken by time, not by another.
        error: to raise where it waits.

    """

    __slots__ = ("_lock", "error", "name", "ready", "slept", "thread", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = threading.get_ident()
        self.turn = 0
        self.ready = self.slept = False
        self.error: Exception | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def hand_over(self) -> None:
        """Let its thread run."""
        self._lock.release()

    def take(self) -> None:
        """Wait until the thread may run."""
        self._lock.acquire()


class Scheduler:
    """Threads that run one at a time, each while it holds the permit."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = 0
        self._root = self._holder = Permit(_ROOT)
        self._ready: deque[Permit] = deque()
        # (moment, order, permit, its turn when it went to sleep: a later turn means it has woken
        # since)
        self._sleepers: list[tuple[float, int, Permit, int]] = []
        self._waiting: dict[Permit, str] = {}
        self._closing = False

    def now(self) -> float:
        return self._now

    def check_open(self) -> None:
        """Raise ``Interrupted`` if the clock is being closed."""
        if self._closing:
            raise Interrupted("the simulation has ended")

    @property
    def holder(self) -> Permit:
        """The permit of the thread that runs now, the caller."""
        return self._holder

    def passes_undisturbed(self, moment: float) -> bool:
        """Advance to a moment unless another thread can run before it; return whether it did."""
        if self._ready or (self._sleepers and self._sleepers[0][0] <= moment):
            return False
        self._now = moment
        return True

    def wake_at(self, permit: Permit, moment: float) -> None:
        """Wake a thread at a moment, which replaces any moment given before."""
        permit.turn += 1
        self._order += 1
        heappush(self._sleepers, (moment, self._order, permit, permit.turn))

    def wake(self, permit: Permit) -> None:
        """Make a thread ready to run."""
        permit.turn += 1
        if not permit.ready:
            permit.ready = True
            self._ready.append(permit)

    def suspend(self, what: str) -> bool:
        """Let others run until the caller is woken; return whether that was at its moment.

        Args:
            what: the caller waits for, named if there is a deadlock.

        """
        self.check_open()
        me = self._holder
        if me.thread != threading.get_ident():
            raise StateError(f"{me.name} runs: only tasks that the clock started may wait with it")
        self._waiting[me] = what
        try:
            following = self._following()
            if following is not me:
                self._holder = following
                following.hand_over()
                me.take()
        finally:
            self._waiting.pop(me, None)
        self.check_open()
        if me.error is not None:
            error, me.error = me.error, None
            raise error
        slept, me.slept = me.slept, False
        return slept

    def ended(self) -> None:
        """End the holder's task; its thread must not touch the clock after this."""
        if self._closing:
            return
        self._holder = following = self._following()
        following.hand_over()

    def _following(self) -> Permit:
        """Return the next thread to run; advances the time if all sleep."""
        if self._ready:
            return self._next_ready()
        while self._sleepers:
            moment, _, permit, turn = heappop(self._sleepers)
            if permit.turn == turn:
                self._now = max(self._now, moment)
                permit.slept = True
                return permit
        waits = "; ".join(f"{one.name} waits for {what}" for one, what in self._waiting.items())
        for permit in self._waiting:
            permit.error = StateError(f"deadlock at {self._now:.6g} s: {waits}")
            self.wake(permit)
        return self._next_ready()

    def _next_ready(self) -> Permit:
        permit = self._ready.popleft()
        permit.ready = False
        return permit
