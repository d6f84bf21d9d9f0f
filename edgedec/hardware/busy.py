"""Measures the processor time that other programs use over an interval.

Busy is the share of the time of this process's allowed cores that neither this process nor its
finished children spent: user, system and interrupt time of everything else, and time stolen by a
hypervisor. A core that waits, for a disk or for work, is not busy. Only Linux counts this per core;
elsewhere the share is unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

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
    return sum(columns[place] for place in _COUNTED)
