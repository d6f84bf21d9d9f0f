"""Interfaces of time and threads, so that a test can provide its own.

Concurrent code waits only through a ``Clock``: the wall clock here, or a virtual one, under which
the same code runs against simulated passes, instantly and always in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Protocol

from edgedec.hardware.pinning import pinned
from edgedec.records.place import Place


class Signal(Protocol):
    """An event that one thread signals to others: set, or not."""

    def set(self) -> None:
        """Wake the waiting threads."""
        ...

    def clear(self) -> None:
        """Reset the signal."""
        ...

    def is_set(self) -> bool:
        """Return True if it is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; return whether it is."""
        ...


class Task(Protocol):
    """A function running in a thread of its own."""

    def join(self) -> None:
        """Wait for it to end."""
        ...


class Clock(Protocol):
    """A source of time, sleep, signals and threads."""

    def now(self) -> float:
        """Return seconds since a fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass without computing."""
        ...

    def signal(self) -> Signal:
        """Return a new signal, not set."""
        ...

    def start(
        self, run: Callable[[], None], *, name: str, cores: Sequence[int] | None = None
    ) -> Task:
        """Run a function, which must not raise, in a thread of its own on these cores."""
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

        # A daemon, so that a program that ends in the middle of a text does not wait for a draft.
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread


def cores_of(place: Place | None, clock: Clock) -> tuple[int, ...] | None:
    """Return the cores that a thread stays on; None under a simulated clock."""
    return place.cores if place is not None and isinstance(clock, WallClock) else None
