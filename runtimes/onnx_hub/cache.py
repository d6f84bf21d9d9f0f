"""Keys and values between two passes: in two alternating buffers, or in place.

Most graphs read the whole cache and write it again followed by their own rows, so past and present
cannot share memory. Dropping rows at the end moves the remaining ones (a head's rows are one
contiguous block, followed by the next head's): that is deferred until a pass needs it, and done
once.

An attention that is told how many tokens there are takes one buffer of full capacity as past and as
present, and writes its own rows into it. Rows that are dropped are written over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.runtimes._ort.memory import release, reserve
from edgedec.runtimes._ort.saved import Rows


@dataclass(frozen=True, slots=True)
class Group:
    """Caches of one shape.

    Attributes:
        names: of their inputs and outputs in the graph, without past or present.
        heads: heads with keys and values.
        width: numbers a head keeps of a token.

    """

    names: tuple[str, ...]
    heads: int
    width: int

    @property
    def numbers(self) -> int:
        """Numbers that all of them keep of a token."""
        return len(self.names) * self.heads * self.width

    def shape(self, length: int) -> tuple[int, int, int, int]:
        """Return the shape of all of them as one array."""
        return len(self.names), self.heads, length, self.width


@dataclass(frozen=True, slots=True)
class Side:
    """Where the caches begin, group by group, and how many tokens each has room for."""

    addresses: list[int]
    slots: int


class PastCache:
    """The rows a sequence holds, one array ``[entries, kv_heads, held, width]`` a group.

    Args:
        groups: the caches of the graph.
        slots: tokens that fit.

    Attributes:
        held: tokens in it, dropped ones included until ``keep``.

    """

    def __init__(self, groups: Sequence[Group], slots: int, dtype: np.dtype[Any]) -> None:
        self._groups = groups
        self._dtype = dtype
        self._starts = np.cumsum([0, *(group.numbers * slots for group in groups)]).tolist()
        size = self._starts[-1] * dtype.itemsize
        self._maps = [reserve(size), reserve(size)]
        self._buffers: list[npt.NDArray[Any]] = [
            np.frombuffer(map_ if map_ is not None else np.zeros(size, np.uint8), dtype)
            for map_ in self._maps
        ]
        self._addresses = [buffer.ctypes.data for buffer in self._buffers]
        self.held = 0
        self.rows: list[Rows] = self._views(0, 0)

    def keep(self, length: int) -> None:
        """Drop all but the first ``length`` tokens, and make them contiguous."""
        if length < self.held:
            kept = self._views(1, length)
            for to, rows in zip(kept, self.rows, strict=True):
                to[...] = rows[:, :, :length]
            self._turn(length)

    def take(self, rows: Sequence[Rows], length: int) -> None:
        """Replace the contents by these, shaped as ``rows`` but with ``length`` tokens."""
        for to, source in zip(self._views(1, length), rows, strict=True):
            to[...] = source
        self._turn(length)

    def addresses(self, turn: int, length: int) -> list[int]:
        """Return where each entry begins, group by group.

        Args:
            turn: 0 for the current buffer, 1 for the other one.
            length: tokens it has there.

        """
        found: list[int] = []
        for group, start in zip(self._groups, self._starts, strict=False):
            step = group.heads * length * group.width
            found += (start + entry * step for entry in range(len(group.names)))
        base, itemsize = self._addresses[turn], self._dtype.itemsize
        return [base + at * itemsize for at in found]

    def sides(self, past: int, total: int) -> tuple[Side, Side]:
        """Return what a pass reads and what it writes."""
        return Side(self.addresses(0, past), past), Side(self.addresses(1, total), total)

    def written(self, length: int) -> None:
        """Switch to the other buffer, which has been filled with ``length`` tokens."""
        self._turn(length)

    def close(self) -> None:
        """Free the memory."""
        self.rows, self._buffers = [], []
        for map_ in self._maps:
            if map_ is not None:
                release(map_)
        self._maps = []

    def _turn(self, length: int) -> None:
        self._buffers.reverse()
        self._addresses.reverse()
        self.held = length
        self.rows = self._views(0, length)

    def _views(self, turn: int, length: int) -> list[Rows]:
        buffer = self._buffers[turn]
        return [
            buffer[start : start + group.numbers * length].reshape(group.shape(length))
            for group, start in zip(self._groups, self._starts, strict=False)
        ]


class SharedCache:
    """The rows a sequence holds in place, one array ``[entries, kv_heads, slots, width]`` a group.

    Args, attributes: as those of ``PastCache``.

    """

    def __init__(self, groups: Sequence[Group], slots: int, dtype: np.dtype[Any]) -> None:
        sizes = [group.numbers * slots * dtype.itemsize for group in groups]
        self._maps = [reserve(size) for size in sizes]
        self.rows: list[Rows] = [
            np.frombuffer(np.zeros(size, np.uint8) if map_ is None else map_, dtype).reshape(
                group.shape(slots)
            )
            for map_, size, group in zip(self._maps, sizes, groups, strict=True)
        ]
        starts = [entry.ctypes.data for rows in self.rows for entry in rows]
        self._side = Side(starts, slots)
        self.held = 0

    def keep(self, length: int) -> None:
        """Drop all but the first ``length`` tokens."""
        self.held = min(self.held, length)

    def take(self, rows: Sequence[Rows], length: int) -> None:
        """Replace the contents by these, shaped as ``rows`` but with ``length`` tokens."""
        for own, given in zip(self.rows, rows, strict=True):
            own[:, :, :length] = given
        self.held = length

    def sides(self, past: int, total: int) -> tuple[Side, Side]:
        """Return what a pass reads and what it writes: the same."""
        return self._side, self._side

    def written(self, length: int) -> None:
        """A pass has left ``length`` tokens."""
        self.held = length

    def close(self) -> None:
        """Free the memory."""
        self.rows = []
        for map_ in self._maps:
            if map_ is not None:
                release(map_)
        self._maps = []
