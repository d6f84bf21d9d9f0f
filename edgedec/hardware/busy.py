"""The processor time that other programs use, measured over an interval.

Busy is the share of the time of the cores which this process may use that neither this process
nor its finished children spent: user, system and interrupt time of everything else, and what a
hypervisor took. A core that waits, for a disk or for work, is not busy. Linux alone counts
this by core; elsewhere the share is unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

# Above this share a machine counts as busy: what is measured on it does not last. A desktop
# that only shows its windows stays below; one program that computes on one of eight cores does
# not.
BUSY = 0.10
_STAT = Path("/proc/stat")
# Columns of a core in /proc/stat, in ticks: user, nice, system, irq, softirq, steal; between
# them stand idle and iowait. Guests' time is part of user.
_COUNTED = (0, 1, 2, 5, 6, 7)
# A shorter stretch has too few of the kernel's ticks of 10 ms.
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time at one moment.

    Attributes:
        at_s: a clock's seconds.
        all_s: seconds that the cores were busy, since the machine started.
        own_s: those of this process and its finished children, since it started.
        cores: how many cores count.

    """

    at_s: float
    all_s: float
    own_s: float
    cores: int


def usage(stat: Path = _STAT) -> Usage | None:
    """Processor time until now; None where the system does not count it."""
    try:
        cores = os.sched_getaffinity(0)
        lines = stat.read_text("ascii").splitlines()
        ticks = os.sysconf("SC_CLK_TCK")
        busy = [_ticks(line) for line in lines if _core(line) in cores]
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    # A sandbox may show a file of zeros.
    if len(busy) != len(cores) or not sum(busy):
        return None
    return Usage(monotonic(), sum(busy) / ticks, sum(os.times()[:4]), len(cores))


def by_others(before: Usage | None, after: Usage | None) -> float | None:
    """Share of the cores' time, 0 to 1, that other programs spent; None where it is unknown."""
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
