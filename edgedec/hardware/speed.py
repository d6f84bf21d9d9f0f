"""How the speed of a device is taken, whatever runtime computes.

A runtime computes chains of square matrices, as a decoder's layers follow each other: one row
reads all weights once, many rows compute with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgedec.hardware.device import Device, Speed
from edgedec.hardware.machine import memory

# A decoder's dimension, and enough of a matrix for any device to fill its units with.
SIDE = 2048
# Weights that no cache of small devices holds, and what may be taken of free memory.
_MOST_BYTES = 128 << 20
_SHARE = 1 / 8
_LEAST_RUNS, _MOST_RUNS = 3, 50
# Rows of the product whose arithmetic is taken: few enough for a board, many for a card.
WIDTHS = (64, 256, 1024)
_LIMIT_S = 0.1
# Wider products are tried while they bring so much.
_GAIN = 1.1
# Bytes of a weight; four bits come with a scale for every 32.
_SIZES = {"f32": 4.0, "f16": 2.0, "int4": 0.5625}
# Numbers are drawn once and repeated, which takes a tenth of the time; no row begins as another.
_DRAWN = 65_537
_DEVIATION = (7 * 8 / 3) ** 0.5  # of the whole numbers from -7 to 7
INT4_SCALE = 1 / (_DEVIATION * SIDE**0.5)
# How far a row may be from numpy's, as a share of its length: int8 activations and bfloat16
# products err by a few hundredths, another formula by all of it.
_TOLERANCE = 0.1


class CannotCompute(Exception):
    """A device does not compute a product, or computes it wrong; the reason in one line."""


@dataclass(frozen=True, slots=True)
class Run:
    """A chain that was computed.

    Attributes:
        seconds: of a run.
        weight_bytes: read once by it.
        operations: its multiplications and additions.

    """

    seconds: float
    weight_bytes: int
    operations: int


class Timed(Protocol):
    """Computes ``count`` matrices with ``rows`` rows; ``weights`` is f32, f16 or int4."""

    def __call__(self, weights: str, count: int, rows: int) -> Run:
        """Raises CannotCompute."""
        ...


def take_speed(device: Device, timed: Timed) -> Speed:
    """A device's speed.

    Raises:
        CannotCompute: none of its products.

    """
    # Cards and neural processors are made for halves, and some know nothing else.
    formats = ["f32"] if device.kind == "cpu" else ["f16", "f32"]
    reasons = []
    for weights in formats:
        try:
            rate, flops = _rates(weights, device, timed)
        except CannotCompute as error:
            reasons.append(str(error))
            continue
        try:
            return Speed(rate, flops, weights, *_rates("int4", device, timed))
        except CannotCompute:
            return Speed(rate, flops, weights)
    raise CannotCompute(reasons[0])


def _rates(weights: str, device: Device, timed: Timed) -> tuple[float, float]:
    """Bytes a second of one row, operations a second of many."""
    each = int(SIDE * SIDE * _SIZES[weights])
    # The weights themselves, and once more as the kernels want them.
    one = timed(weights, affordable(2 * each, device.memory_free), 1)
    return one.weight_bytes / one.seconds, peak(lambda rows: timed(weights, 1, rows))


def affordable(each: int, free: int | None = None) -> int:
    """How many weights of so many bytes to measure with; at least one.

    Args:
        each: bytes of one, with what a runtime keeps beside it.
        free: bytes of the device's own memory; None is the machine's.

    """
    left = memory().free if free is None else free
    most = 2 * _MOST_BYTES if left is None else min(2 * _MOST_BYTES, int(left * _SHARE))
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


def peak(timed: Callable[[int], Run]) -> float:
    """The most operations a second of products with more and more rows."""
    best = 0.0
    for rows in WIDTHS:
        run = timed(rows)
        before, best = best, max(best, run.operations / run.seconds)
        if best < _GAIN * before or run.seconds > _LIMIT_S:
            break
    return best


# -- weights ------------------------------------------------------------------------------------


def float_matrix() -> NDArray[np.float32]:
    """[SIDE, SIDE]; a row keeps its length, and no page is the system's one page of zeros."""
    drawn = np.random.default_rng(0).standard_normal(_DRAWN, np.float32) / np.float32(SIDE**0.5)
    return np.resize(drawn.astype(np.float32), (SIDE, SIDE))


def int4_matrix() -> NDArray[np.uint8]:
    """[SIDE, SIDE] of 1..15 around the zero point of 8; times ``INT4_SCALE`` it keeps lengths."""
    # With 0 the mean would lie beside the zero point and grow from matrix to matrix.
    return np.resize(np.random.default_rng(0).integers(1, 16, _DRAWN, np.uint8), (SIDE, SIDE))


def one_row() -> NDArray[np.float32]:
    """[1, SIDE]."""
    return np.random.default_rng(1).standard_normal((1, SIDE), np.float32)


def check(found: NDArray[np.generic], expected: NDArray[np.float32]) -> None:
    """Raise CannotCompute if a product is not what numpy computes."""
    wrong = np.linalg.norm(found.astype(np.float32) - expected)
    if not wrong <= _TOLERANCE * np.linalg.norm(expected):
        raise CannotCompute("its numbers are wrong")
