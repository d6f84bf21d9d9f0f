"""The keys and values of one sequence, in memory that grows with it."""

from __future__ import annotations

import numpy.typing as npt

from edgedec.runtimes.onnx.cache import KvCache, Rows

# A pass reads all slots there are, used or not, and OpenVINO compiles its products anew for each
# number of them: few sizes, and not too many slots. With another number it adds in another order,
# whole blocks of unused slots apart: so a text's bits do not depend on what a session has room for.
BLOCK = 128
STEP = 2 * BLOCK


class GrowingCache(KvCache):
    """A cache of few slots, which takes larger memory when they are used up.

    OpenVINO reads a cache's tensors whole, so each has to be as short as its text.

    Args:
        shape: as of ``KvCache``, but for the number of slots.
        dtype: of keys and values.

    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: npt.DTypeLike) -> None:
        entries, heads, _, width = shape
        super().__init__((entries, heads, STEP, width), dtype)

    def fit(self, slots: int) -> None:
        """Have at least so many slots; what the present ones hold stays."""
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
