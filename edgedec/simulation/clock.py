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
from contextlib import ExitStack, suppress
from heapq import heappop, heappush
from types import TracebackType

from edgedec.errors import Interrupted, StateError
from edgedec.placement.pinning import pinned

_ROOT = "the caller"
# Real seconds that a task may take to end when its clock is closed.
_UNWIND_S = 10.0


class VirtualClock:
    """Seconds that pass only while everybody sleeps or waits; a ``placement.clock.Clock``.

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
        self._root = self._holder = Baton(_ROOT)
        self._ready: deque[Baton] = deque()
        # (moment, order, who, its turn when it went to sleep: another one means it woke since).
        self._sleepers: list[tuple[float, int, Baton, int]] = []
        self._waiting: dict[Baton, str] = {}
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
    def holder(self) -> Baton:
        """Whoever runs now: the caller."""
        return self._holder

    def passes_undisturbed(self, moment: float) -> bool:
        """Move on to a moment if nobody else can run before; whether that was so."""
        if self._ready or (self._sleepers and self._sleepers[0][0] <= moment):
            return False
        self._now = moment
        return True

    def wake_at(self, baton: Baton, moment: float) -> None:
        """It sleeps until then, and not until a moment given before."""
        baton.turn += 1
        self._order += 1
        heappush(self._sleepers, (moment, self._order, baton, baton.turn))

    def wake(self, baton: Baton) -> None:
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

    def _following(self) -> Baton:
        """Whose turn it is; time goes on where all sleep."""
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

    def _next_ready(self) -> Baton:
        baton = self._ready.popleft()
        baton.ready = False
        return baton


class Baton:
    """A thread's right to run.

    Attributes:
        name: of its task.
        thread: which one, as the system counts them.
        turn: how often it was put to sleep or woken.
        ready: it was woken, and others run before it.
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
        """Wait for it."""
        self._lock.acquire()


class VirtualSignal:
    """Set, or not; a ``placement.clock.Signal``."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._set = False
        self._waiting: list[Baton] = []

    def set(self) -> None:
        self._set = True
        for baton in self._waiting:
            self._clock.wake(baton)
        self._waiting.clear()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        clock, me = self._clock, self._clock.holder
        clock.check_open()
        if self._set:
            return True
        if timeout is not None:
            moment = clock.now() + max(timeout, 0.0)
            if clock.passes_undisturbed(moment):
                return False
            clock.wake_at(me, moment)
        self._waiting.append(me)
        try:
            return not clock.give_on("a signal")
        finally:
            if me in self._waiting:
                self._waiting.remove(me)


class VirtualTask:
    """A thread that runs when it has the baton; a ``placement.clock.Task``."""

    def __init__(self, clock: VirtualClock, run: Callable[[], None], name: str) -> None:
        self.baton = Baton(name)
        self._clock = clock
        self._run = run
        self._done = VirtualSignal(clock)
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._body, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end.

        Raises:
            BaseException: what it raised, which the first ``join`` tells.

        """
        self._done.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def end(self) -> None:
        """Make it raise where it waits, and wait for its thread."""
        self._stopped = True
        if self._thread.is_alive() and not self._done.is_set():
            with suppress(RuntimeError):  # it runs: an interrupted caller left it the baton
                self.baton.hand_over()
        self._thread.join(_UNWIND_S)
        if self._thread.is_alive():
            raise StateError(f"{self.baton.name} goes on though the simulation has ended")

    def _body(self) -> None:
        self.baton.thread = threading.get_ident()
        self.baton.take()
        try:
            if not self._stopped:
                self._run()
        except BaseException as error:
            if not self._stopped:
                self._error = error
        self._done.set()
        self._clock.ended()


def _one_core() -> list[int] | None:
    """One of the cores this thread may use; not the same for all processes."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return [cores[os.getpid() % len(cores)]]
