"""The best tokens of a row, without sorting the row."""

from __future__ import annotations

import numpy as np

from edgedec.decoding.tree import FloatArray, IntArray

_BLOCK = 256


def best(logits: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """Ids and logits of the ``count`` largest of each row, best first, equal ones by id.

    At least ``count`` numbers reach the ``count``-th largest of the blocks' maxima, so the
    largest ``count`` are among the numbers that do; those few are sorted.
    """
    rows, columns = logits.shape
    count = min(count, columns)
    ids, values = np.empty((rows, count), np.int64), np.empty((rows, count), np.float32)
    starts = np.arange(0, columns, _BLOCK)
    peaks = np.maximum.reduceat(logits, starts, axis=1)
    for row, (numbers, highest) in enumerate(zip(logits, peaks, strict=True)):
        least = np.partition(highest, -count)[-count] if count <= len(starts) else -np.inf
        hits = [
            start + np.flatnonzero(numbers[start : start + _BLOCK] >= least)
            for start in starts[highest >= least]
        ]
        found = np.concatenate(hits) if hits else starts[:0]
        if len(found) < count:  # a row of NaN compares with nothing
            found = np.arange(columns)
        order = found[np.argsort(-numbers[found], kind="stable")[:count]]
        ids[row], values[row] = order, numbers[order]
    return ids, values
