"""Competition for the processor, measured with probe threads and by threads' waiting time."""

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
# A thread that gets less of a core than this shares it with something.
_FREE = 0.8
_TASKS = Path("/proc/self/task")
_BLOCK = bytes(1 << 19)


def machine_is_busy(seconds: float = _TRIAL_S) -> bool:
    """True if one thread a core gets clearly less than a core each now; takes ``seconds``."""
    return least_share(min(available_cores(), _MOST_THREADS), seconds) < _FREE


def least_share(threads: int, seconds: float) -> float:
    """The least share of a core that one of several computing threads gets, 0 to 1.

    Load averages and pressure files count work of the lowest priority like any other and know
    no cgroup limits; what a thread gets in a trial is what a runtime's threads will get.
    """
    shares: list[float] = []

    def compute() -> None:
        begin, used = time.perf_counter(), time.thread_time()
        while (wall := time.perf_counter() - begin) < seconds:
            hashlib.sha256(_BLOCK)  # long enough to run without the interpreter's lock
        shares.append((time.thread_time() - used) / wall)

    running = [threading.Thread(target=compute) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return min(1.0, *shares, 1.0)


def waiting_times(tasks: Path = _TASKS) -> dict[str, float]:
    """Seconds that each thread of this process was ready to run and waited for a core.

    Empty where the system does not count it.
    """
    try:
        threads = list(tasks.iterdir())
    except OSError:  # another system
        return {}
    found = {}
    for thread in threads:
        with contextlib.suppress(OSError, ValueError):  # it just ended, or nothing is counted
            _, waited_ns, *_ = (thread / "schedstat").read_text("ascii").split()
            found[thread.name] = int(waited_ns) / 1e9
    return found


def longest_wait(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """The longest time one thread waited for a core in between; None where it is not counted."""
    waits = [waited - before.get(thread, 0.0) for thread, waited in after.items()]
    return max(waits) if waits and before else None
