"""The keys and values of one sequence, in address space that is reserved at once."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.runtimes._ort.memory import release, reserve
from edgedec.runtimes.onnx.recent import RecentRows

Rows = npt.NDArray[Any]


class KvCache:
    """Keys and values of all layers, ``[2 * layers, kv_heads, slots, width]``.

    Even rows of the first axis are keys, odd ones values. It is one array, so that tokens are moved
    in all layers by one operation.

    Args:
        shape: as above.
        dtype: float32, or int8 for a quantised cache.
        recent: what other layers keep of the last tokens, if there are any.

    Attributes:
        recent: as given.

    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        dtype: npt.DTypeLike,
        recent: RecentRows | None = None,
    ) -> None:
        self.recent = recent
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._map = reserve(size)
        buffer = self._map if self._map is not None else np.zeros(size, np.uint8)
        self.rows: Rows = np.frombuffer(buffer, dtype).reshape(shape)

    def put(self, rows: Rows, at: int) -> None:
        """Write tokens, ``[2 * layers, kv_heads, tokens, width]``, into slot ``at`` and more."""
        self.rows[:, :, at : at + rows.shape[2]] = rows

    def move(self, sources: Sequence[int], to: int) -> None:
        """Move the tokens of these slots, in ascending order, to slot ``to`` and following."""
        in_place = 0
        for source in sources:
            if source != to + in_place:
                break
            in_place += 1
        left = list(sources[in_place:])
        if left:
            first = to + in_place
            self.rows[:, :, first : first + len(left)] = self.rows[:, :, left]

    def copy_from(self, other: KvCache, length: int) -> None:
        """Copy the first ``length`` tokens of another cache."""
        self.put(other.rows[:, :, :length], 0)

    def trim(self, length: int) -> None:
        """Release the memory of all slots but the first ``length``."""
        if self._map is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        slots = self.rows.shape[2]
        block = self.rows.strides[1]
        used = length * (block // slots)
        for start in range(0, len(self._map), block):
            # Whole pages only: the others also contain slots that are kept.
            first = -(-(start + used) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = min(start + block, len(self._map)) // mmap.PAGESIZE * mmap.PAGESIZE
            if end > first:
                self._map.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Free the memory."""
        self.rows = np.zeros((0, 0, 0, 0), self.rows.dtype)
        if self._map is not None:
            release(self._map)
            self._map = None
