"""Measures competition for the processor, with probe threads and by threads' waiting time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

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


# -- processor time that other programs use -----------------------------------------------------
#
# Busy is the share of the time of this process's allowed cores that neither this process nor its
# finished children spent: user, system and interrupt time of everything else, and time stolen by a
# hypervisor. A core that waits, for a disk or for work, is not busy. Only Linux counts this per
# core; elsewhere the share is unknown.

# Above this share a machine counts as busy, and measurements on it do not last. A desktop that only
# shows its windows stays below, and so does one program on one of eight cores.
BUSY = 0.10
_STAT = Path("/proc/stat")
# Columns of a core in /proc/stat, in ticks: user, nice, system, irq, softirq, steal; idle and
# iowait stand between them. Guests' time is part of user.
_COUNTED = (0, 1, 2, 5, 6, 7)
# A shorter interval has too few of the kernel's 10 ms ticks.
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time at one moment.

    Attributes:
        at_s: a clock's seconds.
        all_s: busy seconds of the cores since the machine started.
        own_s: those of this process and its finished children, since it started.
        cores: number of cores counted.

    """

    at_s: float
    all_s: float
    own_s: float
    cores: int


def usage(stat: Path = _STAT) -> Usage | None:
    """Return the processor time so far; None if the system does not count it."""
    try:
        cores = os.sched_getaffinity(0)
        lines = stat.read_text("ascii").splitlines()
        ticks = os.sysconf("SC_CLK_TCK")
        busy = [_ticks(line) for line in lines if _core(line) in cores]
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    # A sandbox may provide a file of zeros.
    if len(busy) != len(cores) or not sum(busy):
        return None
    return Usage(monotonic(), sum(busy) / ticks, sum(os.times()[:4]), len(cores))


def by_others(before: Usage | None, after: Usage | None) -> float | None:
    """Return the share of the cores' time, 0 to 1, that other programs spent; None if unknown."""
    if before is None or after is None or after.at_s - before.at_s < _SHORTEST_S:
        return None
    there_was = (after.at_s - before.at_s) * after.cores
    others = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, others / there_was))


def _core(line: str) -> int | None:
    name = line.split(" ", 1)[0]
    return int(name[3:]) if name.startswith("cpu") and name[3:].isdigit() else None


def _ticks(line: str) -> int:
    columns = [int(text) for text in line.split()[1:]]
    return sum(columns[index] for index in _COUNTED)
