"""Time and threads as the scheduler sees them, so that a simulation can bring its own.

Whatever waits while several things happen at once waits through a ``Clock``: the wall clock
here, or the virtual one of ``edgedec.simulation``, under which the same code runs against
simulated passes in no time and always the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Protocol

from edgedec.hardware.pinning import pinned


class Signal(Protocol):
    """Something that one thread tells others: set, or not."""

    def set(self) -> None:
        """Wake the waiting threads."""
        ...

    def clear(self) -> None:
        """Not set any more."""
        ...

    def is_set(self) -> bool:
        """True if it is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, at most ``timeout`` seconds; whether it is."""
        ...


class Task(Protocol):
    """A function that runs in a thread of its own."""

    def join(self) -> None:
        """Wait for its end."""
        ...


class Clock(Protocol):
    """Seconds, waiting, and doing two things at once."""

    def now(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass without computing."""
        ...

    def signal(self) -> Signal:
        """A new signal, not set."""
        ...

    def start(
        self, run: Callable[[], None], *, name: str, cores: Sequence[int] | None = None
    ) -> Task:
        """Run a function in a thread of its own, on these cores; it must not raise."""
        ...


class WallClock:
    """Real time and real threads."""

    now = staticmethod(perf_counter)

    def sleep(self, seconds: float) -> None:
        sleep(seconds)

    def signal(self) -> Signal:
        return threading.Event()

    def start(
        self, run: Callable[[], None], *, name: str, cores: Sequence[int] | None = None
    ) -> Task:
        def body() -> None:
            with pinned(cores):
                run()

        # A daemon: a program that ends in the middle of a text does not wait for a draft.
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread
