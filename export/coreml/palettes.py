"""Palettes of sixteen values, each for a group of rows of a matrix: k-means in one dimension.

Values are first counted in fine bins, so that an iteration goes over bins instead of values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgedec.coreml.types import Array
from edgedec.export.tensors import FloatArray

COLOURS = 16
_ROWS = 16
_BINS = 2048
_ITERATIONS = 25


@dataclass(frozen=True, slots=True)
class Palettes:
    """Rows by their palettes.

    Attributes:
        packed: indices of four bits, two to a byte, the first in the low half.
        colours: ``[groups, COLOURS]`` in fp16.
        squared_error, squared_weight: sums over all weights.

    """

    packed: Array
    colours: Array
    squared_error: float
    squared_weight: float


def group_rows(rows: int) -> int:
    """Return how many rows share a palette: a divisor of all of them."""
    return next(size for size in range(min(_ROWS, rows), 0, -1) if rows % size == 0)


def palettes(weights: FloatArray, group: int) -> Palettes:
    """Return the palettes of ``[rows, columns]``, each of ``group`` rows."""
    groups = weights.reshape(-1, group * weights.shape[1])
    colours = np.stack([_colours(values) for values in groups]).astype(np.float16)
    indices = np.empty(groups.shape, np.uint8)
    error = 0.0
    for index, values in enumerate(groups):
        known = colours[index].astype(np.float32)
        indices[index] = np.searchsorted((known[1:] + known[:-1]) / 2, values)
        error += float(np.square(values - known[indices[index]]).sum())
    flat = indices.reshape(-1)
    if len(flat) % 2:
        flat = np.append(flat, np.uint8(0))
    packed = flat[0::2] | (flat[1::2] << np.uint8(4))
    return Palettes(packed, colours, error, float(np.vdot(weights, weights)))


def _colours(values: FloatArray) -> FloatArray:
    """Return sixteen ascending values with a small squared distance to those given."""
    counts, edges = np.histogram(values, _BINS)
    bins = (edges[1:] + edges[:-1]) / 2
    # Values by their bin, whose middle may be far from them: all may be equal, or one be large.
    sums, _ = np.histogram(values, edges, weights=values.astype(np.float64))
    below = np.cumsum(counts)
    shares = (np.arange(COLOURS) + 0.5) / COLOURS
    found = bins[np.searchsorted(below, shares * below[-1])]
    for _ in range(_ITERATIONS):
        nearest = np.searchsorted((found[1:] + found[:-1]) / 2, bins)
        weight = np.bincount(nearest, counts, COLOURS)
        total = np.bincount(nearest, sums, COLOURS)
        # A colour that is nearest to no value is not changed.
        found = np.sort(np.where(weight > 0, total / np.maximum(weight, 1), found))
    colours: FloatArray = found.astype(np.float32)
    return colours
