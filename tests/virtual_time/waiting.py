"""Signals and tasks under a virtual clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from edgedec.errors import StateError
from tests.virtual_time.scheduler import Permit, Scheduler

# Real seconds that a task may take to end when its clock is closed.
_UNWIND_S = 10.0


class VirtualSignal:
    """A flag to wait for; an ``overlap.clock.Signal``."""

    def __init__(self, clock: Scheduler) -> None:
        self._clock = clock
        self._set = False
        self._waiting: list[Permit] = []

    def set(self) -> None:
        self._set = True
        for permit in self._waiting:
            self._clock.wake(permit)
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
            return not clock.suspend("a signal")
        finally:
            if me in self._waiting:
                self._waiting.remove(me)


class VirtualTask:
    """A thread that runs while it holds the permit; an ``overlap.clock.Task``."""

    def __init__(self, clock: Scheduler, run: Callable[[], None], name: str) -> None:
        self.permit = Permit(name)
        self._clock = clock
        self._run = run
        self._done = VirtualSignal(clock)
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._body, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for it to end.

        Raises:
            BaseException: what the task raised, at the first ``join`` only.

        """
        self._done.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def end(self) -> None:
        """Make the task raise where it waits, and wait for its thread."""
        self._stopped = True
        if self._thread.is_alive() and not self._done.is_set():
            with suppress(RuntimeError):  # it runs: an interrupted caller handed over to it
                self.permit.hand_over()
        self._thread.join(_UNWIND_S)
        if self._thread.is_alive():
            raise StateError(f"{self.permit.name} runs although the simulation has ended")

    def _body(self) -> None:
        self.permit.thread = threading.get_ident()
        self.permit.take()
        try:
            if not self._stopped:
                self._run()
        except BaseException as error:
            if not self._stopped:
                self._error = error
        self._done.set()
        self._clock.ended()
