"""A clock whose time passes in no time, for the same code that runs against the wall clock.

Its tasks are real threads that hand on one baton: whoever holds it runs, all others wait for
it. A thread gives it on when it sleeps, waits or ends; first to those that could go on, in the
order in which they could, then to the one that sleeps until the earliest moment, which becomes
now. So the same program always takes the same course, however busy the machine is.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush
from types import TracebackType

from edgedec.errors import Interrupted, StateError
from edgedec.hardware.pinning import pinned
from edgedec.replay.waiting import Permit, VirtualSignal, VirtualTask

_ROOT = "the caller"


class VirtualClock:
    """Seconds that pass only while everybody sleeps or waits; a ``overlap.clock.Clock``.

    Used by one thread and the tasks that it starts. What waits must wait through the clock:
    a loop that polls without sleeping never lets another thread run. Leaving it as a context
    ends the tasks that still wait: their call raises ``Interrupted``. While there are tasks in
    a context its threads share one core: only one runs, and a baton passed between cores
    takes ten times as long.

    Raises:
        StateError: by every call that waits, when nobody can go on any more: says who waits
            for what.

    """

    def __init__(self) -> None:
        self._now = 0.0
        self._order = 0
        self._root = self._holder = Permit(_ROOT)
        self._ready: deque[Permit] = deque()
        # (moment, order, who, its turn when it went to sleep: another one means it woke since).
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
            self.give_on("the end of its sleep")

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
        self.wake(task.baton)
        return task

    def close(self) -> None:
        """End the tasks that have not ended, one after the other, and wait for their threads."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if self._core is not None:
            self._core.close()
            self._core = None

    # -- for what waits: signals, tasks, and passes that slow each other -----------------------

    def check_open(self) -> None:
        """Raise ``Interrupted`` when the clock is being closed."""
        if self._closing:
            raise Interrupted("the simulation has ended")

    @property
    def holder(self) -> Permit:
        """The thread that runs now: the caller."""
        return self._holder

    def passes_undisturbed(self, moment: float) -> bool:
        """Advance to a moment unless another thread can run before; returns whether it did."""
        if self._ready or (self._sleepers and self._sleepers[0][0] <= moment):
            return False
        self._now = moment
        return True

    def wake_at(self, baton: Permit, moment: float) -> None:
        """It sleeps until then, and not until a moment given before."""
        baton.turn += 1
        self._order += 1
        heappush(self._sleepers, (moment, self._order, baton, baton.turn))

    def wake(self, baton: Permit) -> None:
        """It can go on now."""
        baton.turn += 1
        if not baton.ready:
            baton.ready = True
            self._ready.append(baton)

    def give_on(self, what: str) -> bool:
        """Let others run until the caller is woken; whether that was at its moment.

        Args:
            what: it waits for, for whoever looks for a deadlock.

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
        """The holder's task ends; its thread must not touch the clock after this."""
        if self._closing:
            return
        self._holder = following = self._following()
        following.hand_over()

    def _following(self) -> Permit:
        """Return the next thread to run; advances the time where all sleep."""
        if self._ready:
            return self._next_ready()
        while self._sleepers:
            moment, _, baton, turn = heappop(self._sleepers)
            if baton.turn == turn:
                self._now = max(self._now, moment)
                baton.slept = True
                return baton
        waits = "; ".join(f"{baton.name} waits for {what}" for baton, what in self._waiting.items())
        for baton in self._waiting:
            baton.error = StateError(f"nobody can go on at {self._now:.6g} s: {waits}")
            self.wake(baton)
        return self._next_ready()

    def _next_ready(self) -> Permit:
        baton = self._ready.popleft()
        baton.ready = False
        return baton


def _one_core() -> list[int] | None:
    """One of the cores this thread may use; not the same for all processes."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return [cores[os.getpid() % len(cores)]]
