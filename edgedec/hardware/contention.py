"""Measures competition for the processor, with probe threads and by threads' waiting time."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from edgedec.hardware.device import available_cores

_TRIAL_S = 0.03
_MOST_THREADS = 64
# A thread that gets a smaller share of a core than this one competes with something.
_FREE = 0.8
_TASKS = Path("/proc/self/task")
_BLOCK = bytes(1 << 19)


def machine_is_busy(seconds: float = _TRIAL_S) -> bool:
    """Return whether a probe thread per core gets clearly less than a core; takes ``seconds``."""
    return least_share(min(available_cores(), _MOST_THREADS), seconds) < _FREE


def least_share(threads: int, seconds: float) -> float:
    """Return the smallest share of a core that any of several computing threads gets, 0 to 1.

    Load averages and pressure files count work of the lowest priority like any other and ignore
    cgroup limits; what a probe thread gets is what a runtime's threads will get.
    """
    shares: list[float] = []

    def compute() -> None:
        begin, used = time.perf_counter(), time.thread_time()
        while (wall := time.perf_counter() - begin) < seconds:
            hashlib.sha256(_BLOCK)  # long enough to release the interpreter's lock
        shares.append((time.thread_time() - used) / wall)

    running = [threading.Thread(target=compute) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return min(1.0, *shares, 1.0)


def waiting_times(tasks: Path = _TASKS) -> dict[str, float]:
    """Return, by thread of this process, seconds in which it was ready but waited for a core.

    Empty if the system does not count it.
    """
    try:
        threads = list(tasks.iterdir())
    except OSError:  # another system
        return {}
    found = {}
    for thread in threads:
        # the thread has just ended, or nothing is counted
        with contextlib.suppress(OSError, ValueError):
            _, waited_ns, *_ = (thread / "schedstat").read_text("ascii").split()
            found[thread.name] = int(waited_ns) / 1e9
    return found


def longest_wait(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the longest time that one thread waited for a core in between; None if unknown."""
    waits = [waited - before.get(thread, 0.0) for thread, waited in after.items()]
    return max(waits) if waits and before else None
