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

    Layers whose heads have other sizes are in arrays of their own.

    Args:
        shape: as above.
        dtype: float32, or int8 for a quantised cache.
        recent: what other layers keep of the last tokens, if there are any.
        others: shapes of further arrays.

    Attributes:
        rows: the first array.
        recent: as given.

    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        dtype: npt.DTypeLike,
        recent: RecentRows | None = None,
        others: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        self.recent = recent
        counts = [int(np.prod(one)) for one in (shape, *others)]
        size = sum(counts) * np.dtype(dtype).itemsize
        self._map = reserve(size)
        buffer = self._map if self._map is not None else np.zeros(size, np.uint8)
        parts = np.split(np.frombuffer(buffer, dtype), np.cumsum(counts)[:-1])
        self.rows: Rows = parts[0].reshape(shape)
        self._others = [part.reshape(one) for part, one in zip(parts[1:], others, strict=True)]

    @property
    def groups(self) -> list[Rows]:
        return [self.rows, *self._others]

    def put(self, rows: Rows, at: int) -> None:
        """Write tokens, ``[2 * layers, kv_heads, tokens, width]``, into slot ``at`` and more."""
        self.rows[:, :, at : at + rows.shape[2]] = rows

    def load(self, groups: Sequence[Rows]) -> None:
        """Start with these tokens, an array for each of ``groups``."""
        self.put(groups[0], 0)
        for own, rows in zip(self._others, groups[1:], strict=True):
            own[:, :, : rows.shape[2]] = rows

    def written(self, at: int, count: int) -> Rows:
        """Return what some tokens have in all layers, ``[count, numbers]``, as a copy."""
        found = [np.moveaxis(rows[:, :, at : at + count], 2, 0) for rows in self.groups]
        return np.concatenate([rows.reshape(count, -1) for rows in found], axis=1)

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
            for rows in self.groups:
                rows[:, :, first : first + len(left)] = rows[:, :, left]

    def copy_from(self, other: KvCache, length: int) -> None:
        """Copy the first ``length`` tokens of another cache."""
        self.load([rows[:, :, :length] for rows in other.groups])

    def trim(self, length: int) -> None:
        """Release the memory of all slots but the first ``length``."""
        if self._map is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        begin = 0
        for rows in self.groups:
            block = rows.strides[1]
            used = length * (block // rows.shape[2])
            for start in range(begin, begin + rows.nbytes, block):
                # Whole pages only: the others also hold slots that are kept.
                first = -(-(start + used) // mmap.PAGESIZE) * mmap.PAGESIZE
                end = (start + block) // mmap.PAGESIZE * mmap.PAGESIZE
                if end > first:
                    self._map.madvise(mmap.MADV_DONTNEED, first, end - first)
            begin += rows.nbytes

    def close(self) -> None:
        """Free the memory."""
        self.rows, self._others = np.zeros((0, 0, 0, 0), self.rows.dtype), []
        if self._map is not None:
            release(self._map)
            self._map = None
