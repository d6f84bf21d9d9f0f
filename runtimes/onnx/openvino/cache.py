"""The keys and values of one sequence, in memory that grows with the sequence."""

from __future__ import annotations

import numpy.typing as npt

from edgedec.runtimes.onnx.cache import KvCache, Rows

# A pass reads all slots, used or not, and OpenVINO compiles its products again for each number of
# slots, so there should be few sizes and few unused slots. The order of summation depends on the
# number of slots, except that whole blocks of unused slots change nothing, so results do not depend
# on a session's capacity.
BLOCK = 128
STEP = 2 * BLOCK


class GrowingCache(KvCache):
    """A cache that starts with few slots and moves to larger memory when they are used up.

    OpenVINO reads a cache's tensors whole, so they must not be much longer than the sequence.

    Args:
        shape: as for ``KvCache``; the number of slots is the largest.
        dtype: type of keys and values.

    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: npt.DTypeLike) -> None:
        entries, heads, _, width = shape
        super().__init__((entries, heads, STEP, width), dtype)

    def fit(self, slots: int) -> None:
        """Grow to at least this many slots, keeping their contents."""
        held = self.rows.shape[2]
        if slots > held:
            self._replace(slots, held)

    def _replace(self, slots: int, kept: int) -> None:
        entries, heads, _, width = self.rows.shape
        whole = max(1, -(-slots // STEP)) * STEP
        other = KvCache((entries, heads, whole, width), self.rows.dtype)
        other.put(self.rows[:, :, :kept], 0)
        self._map, other._map = other._map, self._map
        self.rows, other.rows = other.rows, self.rows
        other.close()

    def put(self, rows: Rows, at: int) -> None:
        """See ``KvCache``."""
        self.fit(at + rows.shape[2])
        super().put(rows, at)

    def trim(self, length: int) -> None:
        """See ``KvCache``."""
        self._replace(length, length)
