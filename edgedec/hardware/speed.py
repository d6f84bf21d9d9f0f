"""Measures a device through its runtime, for ``edgedec devices``.

The runtime computes a chain of square matrices, as a decoder's layers follow each other: one row
reads all weights once, many rows are limited by arithmetic. Weights are stored as ``f32``, ``f16``
or ``int4``.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device, Speed
from edgedec.hardware.machine import memory

# A decoder's dimension, large enough for a matrix to occupy any device's units.
SIDE = 2048
BLOCK = 32  # four-bit weights that share a scale
# More bytes than the caches of small devices hold, and the share of free memory they may take.
_MOST_BYTES, _SHARE = 128 << 20, 1 / 16
_SIZES = {"f32": 4.0, "f16": 2.0, "int4": 0.5625}
# Rows of the product whose arithmetic is measured: few enough for a board, many for a graphics
# card; wider ones are tried while each is faster by this factor.
WIDTHS = (64, 256, 1024)
_GAIN = 1.1
_MOST_RUNS, _LIMIT_S = 50, 0.1
SCALE = (3 / (7 * 8 * SIDE)) ** 0.5  # times integers from -7 to 7, keeps a row's length
# Largest distance of a row from numpy's, relative to its length: int8 activations and bfloat16
# products are off by a few hundredths, a wrong formula by all of it.
_TOLERANCE = 0.1


class CannotCompute(Exception):
    """A device cannot compute a product, or computes it wrong; the reason in one line."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A chain of matrices on its device.

    Attributes:
        run: computes it.
        result: reads its last rows, or one of them: [any, SIDE].
        weight_bytes: of its matrices.

    """

    run: Callable[[], object]
    result: Callable[[], NDArray[Any]]
    weight_bytes: int


# Places ``count`` matrices and ``rows`` rows, each ``one_row()``, on a device: ``(weights, count,
# rows)``. Any exception of it or of the chain is a CannotCompute.
Prepare = Callable[[str, int, int], AbstractContextManager[Ready]]


def take_speed(device: Device, maker: str, prepare: Prepare) -> Speed:
    """Return a device's speed; ``maker`` names its runtime, for messages.

    Raises:
        RuntimeUnavailable: it computes none of the products.

    """
    # Graphics cards and neural processors are built for float16; some support nothing else.
    formats = ["f32"] if device.kind == "cpu" else ["f16", "f32"]
    reasons = []
    for weights in formats:
        try:
            rates = _rates(weights, device, prepare)
        except CannotCompute as error:
            reasons.append(error)
            continue
        try:
            return Speed(*rates, weights, *_rates("int4", device, prepare))
        except CannotCompute:
            return Speed(*rates, weights)
    raise RuntimeUnavailable(f"{device.name} ({maker}) cannot compute a product: {reasons[0]}")


def _rates(weights: str, device: Device, prepare: Prepare) -> tuple[float, float]:
    """Return bytes per second with one row, and the most operations per second with many."""
    one_row_s, size = measured(prepare, weights, affordable(weights, device.memory_free), 1)
    best = 0.0
    for rows in WIDTHS:
        seconds, _ = measured(prepare, weights, 1, rows)
        before, best = best, max(best, 2 * rows * SIDE * SIDE / seconds)
        if best < _GAIN * before or seconds > _LIMIT_S:
            break
    return size / one_row_s, best


def measured(prepare: Prepare, weights: str, count: int, rows: int) -> tuple[float, int]:
    """Return a run's seconds and the bytes it reads; CannotCompute unless it agrees with numpy."""
    with prepare(weights, count, rows) as ready:
        seconds = typical_seconds(ready.run)
        found = ready.result().astype(np.float32)
    expected = one_row()
    for _ in range(count):
        expected = expected @ matrix().T
    wrong = np.linalg.norm(found - expected, axis=1).max()
    if not wrong <= _TOLERANCE * np.linalg.norm(expected):
        raise CannotCompute("its numbers are wrong")
    return seconds, ready.weight_bytes


def affordable(weights: str, free: int | None) -> int:
    """Return how many matrices to use, at least one; ``free`` is the device's memory in bytes."""
    left = memory().free if free is None else free
    most = _MOST_BYTES if left is None else min(_MOST_BYTES, int(left * _SHARE))
    return max(1, int(most // (SIDE * SIDE * _SIZES[weights])))


def typical_seconds(run: Callable[[], object]) -> float:
    """Return the median time of a run, without the first, which may still prepare things."""
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < _LIMIT_S and len(seconds) <= _MOST_RUNS):
        before = perf_counter()
        run()
        seconds.append(perf_counter() - before)
    return statistics.median(seconds[1:])


# -- weights ------------------------------------------------------------------------------------


@functools.cache
def codes() -> NDArray[np.uint8]:
    """Return codes, [SIDE outputs, SIDE inputs], of 1..15 around the zero point of 8."""
    # With 0 the mean would differ from the zero point and grow from matrix to matrix. Repeating a
    # few numbers takes a tenth of the time; no two rows begin alike.
    drawn = np.random.default_rng(0).integers(1, 16, 65_537, np.uint8)
    return np.resize(drawn, (SIDE, SIDE))


@functools.cache
def matrix() -> NDArray[np.float32]:
    """Return the values that ``codes()`` stand for."""
    values: NDArray[np.float32] = (codes().astype(np.float32) - 8) * np.float32(SCALE)
    return values


def one_row() -> NDArray[np.float32]:
    """Return a random row, the same each time: [1, SIDE]."""
    return np.random.default_rng(1).standard_normal((1, SIDE), np.float32)
