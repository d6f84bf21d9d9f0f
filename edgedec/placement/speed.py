"""How the speed of a device is taken, whatever runtime computes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

from edgedec.placement.machine import memory

# Weights that no cache of small devices holds, and what may be taken of free memory.
_MOST_BYTES = 128 << 20
_SHARE = 1 / 8
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Rows of the product whose arithmetic is taken: few enough for a board, many for a card.
WIDTHS = (64, 256, 1024)
_LIMIT_S = 0.1
# Wider products are tried while they bring so much.
_GAIN = 1.1


def affordable(each: int, free: int | None = None) -> int:
    """How many weights of so many bytes to measure with; at least one.

    Args:
        each: bytes of one, with what a runtime keeps beside it.
        free: bytes of the device's own memory; None is the machine's.

    """
    left = memory().free if free is None else free
    most = _MOST_BYTES if left is None else min(_MOST_BYTES, int(left * _SHARE))
    return max(1, most // each)


def typical_seconds(run: Callable[[], object], limit_s: float = _LIMIT_S) -> float:
    """The median of some runs after a first one, which may still prepare things.

    Args:
        run: what is timed.
        limit_s: no further run begins after it, once there are three; a run that takes as
            long as this alone is run once more only.

    """
    begun = perf_counter()
    run()
    least = _LEAST_RUNS if perf_counter() - begun < limit_s else 1
    seconds: list[float] = []
    begun = perf_counter()
    while len(seconds) < _MOST_RUNS:
        before = perf_counter()
        if len(seconds) >= least and before - begun > limit_s:
            break
        run()
        seconds.append(perf_counter() - before)
    return statistics.median(seconds)


def peak(rate: Callable[[int], tuple[float, float]]) -> float:
    """The most operations a second of products with more and more rows.

    Args:
        rate: seconds of a run and its operations, for so many rows.

    """
    best = 0.0
    for rows in WIDTHS:
        seconds, operations = rate(rows)
        before, best = best, max(best, operations / seconds)
        if best < _GAIN * before or seconds > _LIMIT_S:
            break
    return best
