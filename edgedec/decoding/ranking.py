"""The most likely tokens of a row of logits, computed on first use.

Sorting a row of 32k columns for its 8 best costs more than a small model's pass. Each of the k best
is at least the k-th largest of the maxima of disjoint groups, and few other columns are.
"""

from __future__ import annotations

import numpy as np

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, IntArray

_GROUPS = 512
_WORTH_GROUPING = 4 * _GROUPS


def best_among(row: FloatArray, count: int) -> IntArray | None:
    """Return ids, ascending, that include the ``count`` largest of a row and all equal to them.

    Mostly few. None: the row is too short for this to be worth the time, or contains NaN.
    """
    size = len(row)
    if size < _WORTH_GROUPING or count > _GROUPS // 2:
        return None
    whole = size - size % _GROUPS
    maxima = row[:whole].reshape(-1, _GROUPS).max(axis=0)
    if _has_nan(maxima) or _has_nan(row[whole:]):
        return None
    least = np.partition(maxima, _GROUPS - count)[_GROUPS - count]
    return np.flatnonzero(row >= least)


def top(row: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """Return the ``count`` largest of a row: ids and values, best first, equal ones by id.

    The values are NaN if the row contains a NaN.
    """
    found = best_among(row, count)
    if found is None:
        order = np.argsort(-row, kind="stable")[:count]
        return order, np.full(len(order), np.nan, np.float32) if _has_nan(row) else row[order]
    values = row[found]
    order = np.argsort(-values, kind="stable")[:count]
    return found[order], values[order]


def _has_nan(row: FloatArray) -> bool:
    return bool(np.isnan(row.max(initial=-np.inf)))


class Scored(Pass):
    """A pass that computes ``top_ids`` and ``top_logits`` on first use.

    Args:
        start: the first node.
        rows: logits, ``[rows, vocab]``.
        count: columns of ``top_ids``.
        want: whether ``logits`` is provided.

    """

    __slots__ = ("_count", "_rows", "_top")

    def __init__(self, start: int, rows: FloatArray, count: int, want: Want) -> None:
        self.start = start
        self.logits = rows if want & Want.LOGITS else None
        self.states = None
        self._rows, self._count = rows, count
        self._top: tuple[IntArray, FloatArray] | None = None

    @property
    def top_ids(self) -> IntArray:  # type: ignore[override]
        return self._best()[0]

    @property
    def top_logits(self) -> FloatArray:  # type: ignore[override]
        return self._best()[1]

    def first(self) -> tuple[list[int], list[float]]:
        """See ``Pass``; costs a tenth of ``top_ids``."""
        ids = self._rows.argmax(axis=1).tolist()  # the first NaN of a row that contains one
        logit = self._rows.item
        return ids, [logit(row, column) for row, column in enumerate(ids)]

    def leading(self, row: int) -> tuple[list[int], list[float]]:
        """See ``Pass``; the most likely one alone while the others are not known."""
        if self._top is not None:
            return super().leading(row)
        logits = self._rows[row]
        best = int(logits.argmax())
        return [best], [logits.item(best)]

    def _best(self) -> tuple[IntArray, FloatArray]:
        if self._top is None:
            ids = np.empty((len(self._rows), self._count), np.int64)
            values = np.empty(ids.shape, np.float32)
            for index, row in enumerate(self._rows):
                ids[index], values[index] = top(row, self._count)
            self._top = ids, values
        return self._top
