"""Rows of the last tokens, for layers that read no others: their memory has a fixed size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray

# Rows beyond the ones that the next pass reads, by which a session goes back at no cost; and tokens
# of a round, its root and its drafts, besides.
_BACK, ROUND = 16, 48
# Kept by a session besides: see ``edgedec.decoding.trail``.
COPIES = 2

# What a pass reads: rows, and of a recurrence their state.
Copy = tuple[FloatArray, ...]
# Name, memory and shape of an input or output.
Bound = tuple[str, npt.NDArray[Any], tuple[int, ...]]


def memory(layers: int, kept: int, width: int) -> int:
    """Return the bytes of a session's rows, and of its copies of those that a pass reads."""
    return 4 * layers * width * (kept + _BACK + ROUND + COPIES * kept)


class RecentRows:
    """A row of each of the last tokens in some layers, by the tokens' positions.

    A pass reads the ``kept`` rows before it and writes one for each of its tokens; those of tokens
    that are rejected are overwritten by the next pass. Before a text there are zeros.

    Args:
        layers: how many layers.
        kept: rows that a pass reads.
        back: rows beyond those that are read, by which it goes back; None is as many as usual.

    Attributes:
        kept: as given.
        held_from: a position that passes go on from, whose rows are kept whatever is added; None
            is the end.
        real: tokens of the next pass, of which others pad it; None is all.

    """

    def __init__(self, layers: int, kept: int, width: int, back: int | None = None) -> None:
        self.kept = kept
        self._back = _BACK if back is None else back
        self.held_from: int | None = None
        self.real: int | None = None
        # Written at once, so that measured memory includes it.
        self._rows = np.full((layers, kept + self._back + ROUND, width), 0, np.float32)
        self.clear()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the rows before a position."""
        layers, _, width = self._rows.shape
        return layers, self.kept, width

    def clear(self) -> None:
        """Begin a text."""
        self.go(None, 0)

    def go(self, copy: Copy | None, at: int) -> None:
        """Go on from a position with a copy; None is zeros."""
        self._first, self._end = at - self.kept, at
        self.held_from = None
        self._rows[:, : self.kept] = 0 if copy is None else copy[0]

    def copy(self, at: int) -> Copy:
        """Return a copy of what a pass reads that begins at a position."""
        return (self.before(at).copy(),)

    def sizes(self, pending: int) -> list[tuple[int, ...]]:
        """Return the shapes of a copy's arrays."""
        return [self.shape]

    def pending(self, at: int) -> int:
        """Return how many more rows a pass that begins at a position reads."""
        return 0

    def holds(self, at: int) -> bool:
        """Return whether the rows before a position are here."""
        return self._first <= at - self.kept and at <= self._end

    def before(self, at: int) -> FloatArray:
        """Return the rows before a position, ``[layers, kept + pending, width]``, as a view."""
        if not self.holds(at):
            raise ValueError(f"rows before {at} are asked for, {self._first} to {self._end} held")
        start = at - self.kept - self.pending(at) - self._first
        rows: FloatArray = self._rows[:, start : at - self._first]
        return rows

    def put(self, rows: FloatArray, at: int) -> None:
        """Add a pass's rows, ``[layers, tokens, width]``, behind those before a position."""
        self.before(at)  # which are here
        end = at + rows.shape[1]
        if end - self._first > self._rows.shape[1]:
            self._make_room(at, end)
        start = max(at, self._first)
        self._rows[:, start - self._first : end - self._first] = rows[:, start - at :]
        self._end = end

    def copy_from(self, other: RecentRows) -> None:
        """Take over another's contents, as a copy."""
        self._rows, self._first, self._end = other._rows.copy(), other._first, other._end

    def _make_room(self, at: int, end: int) -> None:
        """Drop the oldest rows, but none after ``held_from``; grow if there are more."""
        first = max(self._first, self._oldest(at, end) - self.kept - self._back)
        left = self._rows[:, first - self._first : at - self._first]
        layers, slots, width = self._rows.shape
        if end - first > slots:
            self._rows = np.zeros((layers, 2 * (end - first), width), np.float32)
        else:
            left = left.copy()
        self._rows[:, : left.shape[1]] = left
        self._first = first

    def _oldest(self, at: int, end: int) -> int:
        """Return the first position that may be gone back to."""
        return end if self.held_from is None else min(self.held_from, at)


class Buffers:
    """What passes read from and write for ``RecentRows``.

    Attributes:
        moves: whether it is at other addresses in each pass.

    """

    moves = False

    def __init__(self, recent: RecentRows, layers: tuple[int, ...]) -> None:
        self._recent, self._layers = recent, layers
        self._past = np.zeros(recent.shape, np.float32)
        self._present = np.zeros((len(layers), 0, recent.shape[2]), np.float32)

    def begin(self, at: int, count: int) -> int:
        """Give the next pass what it reads; return which of its outputs are wanted."""
        self._past[...] = self._recent.before(at)
        self._count = count
        return 0

    def reserve(self, count: int) -> bool:
        """Make room for a pass of so many rows; True if that is at other addresses."""
        layers, rows, width = self._present.shape
        if rows >= count:
            return False
        self._present = np.zeros((layers, 2 * count, width), np.float32)
        return True

    def trim(self) -> None:
        """Release the memory of wide passes."""
        self._present = self._present[:, :0].copy()

    def written(self, at: int) -> None:
        """Keep the rows that a pass wrote."""
        self._recent.put(self._present[:, : self._count], at)

    def inputs(self) -> list[Bound]:
        """Return the names, memory and shapes of a pass's inputs."""
        _, kept, width = self._recent.shape
        return [
            (f"past_inputs_{layer}", self._past[index], (1, kept, width))
            for index, layer in enumerate(self._layers)
        ]

    def outputs(self) -> list[Bound]:
        width = self._recent.shape[2]
        return [
            (f"present_inputs_{layer}", self._present[index], (1, self._count, width))
            for index, layer in enumerate(self._layers)
        ]
