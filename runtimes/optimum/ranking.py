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
    blocks = columns // _BLOCK
    least = np.full(rows, -np.inf, np.float32)
    if blocks >= count:
        peaks = logits[:, : blocks * _BLOCK].reshape(rows, blocks, _BLOCK).max(axis=2)
        least = np.partition(peaks, blocks - count, axis=1)[:, blocks - count]
    ids, values = np.empty((rows, count), np.int64), np.empty((rows, count), np.float32)
    for row, numbers in enumerate(logits):
        found = np.flatnonzero(numbers >= least[row])
        if len(found) < count:  # what is no number compares with nothing
            found = np.arange(columns)
        order = found[np.argsort(-numbers[found], kind="stable")[:count]]
        ids[row], values[row] = order, numbers[order]
    return ids, values
