"""A clock in virtual time, for the same code that runs against the wall clock.

Its tasks are real threads, of which only the holder of a permit runs. A thread hands over when it
sleeps, waits or ends: first to threads that can go on, in the order in which they could, then to
the one whose sleep ends earliest, at which moment the time becomes now. So the same program always
takes the same course, however busy the machine is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from edgedec.hardware.pinning import pinned
from tests.virtual_time.scheduler import Scheduler
from tests.virtual_time.waiting import VirtualSignal, VirtualTask


class VirtualClock(Scheduler):
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
        super().__init__()
        self._tasks: list[VirtualTask] = []
        self._core: ExitStack | None = None

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


def _one_core() -> list[int] | None:
    """Return one of the cores this thread may use; processes get different ones."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return [cores[os.getpid() % len(cores)]]
