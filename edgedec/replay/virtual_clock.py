"""A clock in virtual time, for the same code that runs against the wall clock.

Its tasks are real threads, of which only the holder of a permit runs. A thread hands over when it
sleeps, waits or ends: first to threads that can go on, in the order in which they could, then to
the one whose sleep ends earliest, at which moment the time becomes now. So the same program always
takes the same course, however busy the machine is.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush

from edgedec.errors import Interrupted, StateError
from edgedec.hardware.pinning import pinned
from edgedec.replay.waiting import Permit, VirtualSignal, VirtualTask

_ROOT = "the caller"


class VirtualClock:
    """Seconds that pass only while all threads sleep or wait; an ``overlap.clock.Clock``.

    Used by one thread and the tasks that it starts, all of which must wait through the clock: a
    loop that polls without sleeping never lets another thread run. Leaving its context ends the
    tasks that still wait: their call raises ``Interrupted``. While a context has tasks, its threads
    share one core: only one runs, and handing over between cores takes ten times as long.

    Raises:
        StateError: by every call that waits, on a deadlock; names the waiting tasks and their
            reasons.

    """

    def __init__(self) -> None:
        self._now = 0.0
        self._order = 0
        self._root = self._holder = Permit(_ROOT)
        self._ready: deque[Permit] = deque()
        # (moment, order, permit, its turn when it went to sleep: a later turn means it has woken
        # since)
        self._sleepers: list[tuple[float, int, Permit, int]] = []
        self._waiting: dict[Permit, str] = {}
        self._tasks: list[VirtualTask] = []
        self._closing = False
        self._core: ExitStack | None = None

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.check_open()
        moment = self._now + max(seconds, 0.0)
        if not self.passes_undisturbed(moment):
            self.wake_at(self._holder, moment)
            self.suspend("the end of its sleep")

    def signal(self) -> VirtualSignal:
        return VirtualSignal(self)

    def start(
        self, run: Callable[[], None], *, name: str, cores: Sequence[int] | None = None
    ) -> VirtualTask:
        self.check_open()
        if self._core is not None and not self._tasks:
            self._core.enter_context(pinned(_one_core()))
        task = VirtualTask(self, run, name)
        self._tasks.append(task)
        self.wake(task.permit)
        return task

    def close(self) -> None:
        """End the remaining tasks, one after the other, and wait for their threads."""
        self._closing = True
        for task in self._tasks:
            task.end()
        self._tasks.clear()
        self._ready.clear()
        self._sleepers.clear()
        self._waiting.clear()
        self._holder = self._root
        self._closing = False

    def __enter__(self) -> VirtualClock:
        self._core = ExitStack()
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
        if self._core is not None:
            self._core.close()
            self._core = None

    # -- for what waits: signals, tasks, and passes that slow each other -----------------------

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
            permit.error = StateError(f"nobody can go on at {self._now:.6g} s: {waits}")
            self.wake(permit)
        return self._next_ready()

    def _next_ready(self) -> Permit:
        permit = self._ready.popleft()
        permit.ready = False
        return permit


def _one_core() -> list[int] | None:
    """Return one of the cores this thread may use; processes get different ones."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return [cores[os.getpid() % len(cores)]]
