"""Measures a device through the runtime that computes on it, for ``edgedec devices``.

The runtime computes a chain of square matrices, as a decoder's layers follow each other: one row
reads all weights once, many rows compute with them. They are stored as ``f32``, ``f16`` or
``int4``.
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

# A decoder's dimension, and enough of a matrix for any device to fill its units with.
SIDE = 2048
BLOCK = 32  # weights of four bits that share a scale
# Bytes that no cache of small devices holds, and the share of free memory they may take.
_MOST_BYTES, _SHARE = 128 << 20, 1 / 16
_SIZES = {"f32": 4.0, "f16": 2.0, "int4": 0.5625}
# Rows of the product whose arithmetic is measured: few enough for a board, many for a card; wider
# ones are tried while each is faster by this factor.
WIDTHS = (64, 256, 1024)
_GAIN = 1.1
_MOST_RUNS, _LIMIT_S = 50, 0.1
SCALE = (3 / (7 * 8 * SIDE)) ** 0.5  # whole numbers from -7 to 7 times it keep a row's length
# Largest distance of a row from numpy's, as a share of its length: int8 activations and bfloat16
# products err by a few hundredths, another formula by all of it.
_TOLERANCE = 0.1


class CannotCompute(Exception):
    """A device does not compute a product, or computes it wrong; the reason in one line."""


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


# Puts ``count`` matrices and ``rows`` rows, each ``one_row()``, on a device: ``(weights, count,
# rows)``. What it or the chain raises is a CannotCompute.
Prepare = Callable[[str, int, int], AbstractContextManager[Ready]]


def take_speed(device: Device, maker: str, prepare: Prepare) -> Speed:
    """Return the speed of a device; ``maker`` is what computes on it, for messages.

    Raises:
        RuntimeUnavailable: it computes none of the products.

    """
    # Cards and neural processors are made for halves, and some know nothing else.
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
    """Bytes a second of one row; the most operations a second of many."""
    one_row_s, size = measured(prepare, weights, affordable(weights, device.memory_free), 1)
    best = 0.0
    for rows in WIDTHS:
        seconds, _ = measured(prepare, weights, 1, rows)
        before, best = best, max(best, 2 * rows * SIDE * SIDE / seconds)
        if best < _GAIN * before or seconds > _LIMIT_S:
            break
    return size / one_row_s, best


def measured(prepare: Prepare, weights: str, count: int, rows: int) -> tuple[float, int]:
    """Seconds of a run, and the bytes of weights that it reads.

    Raises:
        CannotCompute: the device does not, or computes something else than numpy.

    """
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
    """How many matrices to read, at least one; ``free`` is the device's own memory in bytes."""
    left = memory().free if free is None else free
    most = _MOST_BYTES if left is None else min(_MOST_BYTES, int(left * _SHARE))
    return max(1, int(most // (SIDE * SIDE * _SIZES[weights])))


def typical_seconds(run: Callable[[], object]) -> float:
    """The median time of a run, but for the first, which may still prepare things."""
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < _LIMIT_S and len(seconds) <= _MOST_RUNS):
        before = perf_counter()
        run()
        seconds.append(perf_counter() - before)
    return statistics.median(seconds[1:])


# -- weights ------------------------------------------------------------------------------------


@functools.cache
def codes() -> NDArray[np.uint8]:
    """[SIDE outputs, SIDE inputs] of 1..15 around the zero point of 8."""
    # With 0 the mean would lie beside the zero point and grow from matrix to matrix. Repeating a
    # few numbers takes a tenth of the time; no two rows begin alike.
    drawn = np.random.default_rng(0).integers(1, 16, 65_537, np.uint8)
    return np.resize(drawn, (SIDE, SIDE))


@functools.cache
def matrix() -> NDArray[np.float32]:
    """The values that ``codes()`` stand for."""
    values: NDArray[np.float32] = (codes().astype(np.float32) - 8) * np.float32(SCALE)
    return values


def one_row() -> NDArray[np.float32]:
    """[1, SIDE]."""
    return np.random.default_rng(1).standard_normal((1, SIDE), np.float32)
