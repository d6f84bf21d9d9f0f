"""The states of recurrences that a session keeps, and the rows of the tokens after them.

A state is as large as dozens of tokens' rows, so none is copied to go back. A pass reads a state
and the accepted rows after it, and returns the state before its own tokens and the one after them.
The next pass goes on from the latter if it begins there, else from the former and the rows that
were accepted since.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort

from edgedec.decoding.tree import FloatArray
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes.onnx.recent import COPIES, ROUND, Bound, Buffers, Copy, RecentRows

# States of a session: before its last tokens, after them, and one that a pass writes.
_STATES = 3
# First version of onnxruntime with kernels for recurrences.
SINCE = (1, 25)


def check_runtime(where: str) -> None:
    """Raise RuntimeUnavailable if the installed onnxruntime has no kernels for recurrences."""
    version = ort.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < SINCE:
        needed = ".".join(map(str, SINCE))
        raise RuntimeUnavailable(
            f"{where}: layers with a recurrence need onnxruntime {needed} or newer, this is"
            f" {version}: upgrade it"
        )


def memory(layers: int, kept: int, width: int, state: Sequence[int]) -> int:
    """Return the bytes of a session's states and rows, and of its copies of them."""
    rows = (kept + ROUND) * width + COPIES * kept * width
    return 4 * layers * (rows + (_STATES + COPIES) * int(np.prod(state)))


class RecurrentRows(RecentRows):
    """Rows of the last tokens, and the states between which they lie.

    Args:
        layers, kept, width: as of ``RecentRows``.
        state: shape of a layer's state.

    """

    def __init__(self, layers: int, kept: int, width: int, state: Sequence[int]) -> None:
        # Written at once, so that measured memory includes it.
        self._states = [np.full((layers, *state), 0, np.float32) for _ in range(_STATES)]
        self._base, self._base_at = 0, 0
        # The state after the last pass; None once no pass can begin there.
        self._after: int | None = None
        self._after_at = 0
        super().__init__(layers, kept, width, back=0)

    def pending(self, at: int) -> int:
        """Return how many rows a pass reads again that begins at a position."""
        return 0 if self._is_after(at) else at - self._base_at

    def holds(self, at: int) -> bool:
        """Return whether a pass can begin at a position."""
        return super().holds(at) and (self._is_after(at) or at >= self._base_at)

    def go(self, copy: Copy | None, at: int) -> None:
        """Go on from a position with a copy; None is zeros."""
        rows, state = (None, 0) if copy is None else copy
        pending = 0 if rows is None else rows.shape[1] - self.kept
        super().go(None, at - pending)
        self._base, self._base_at, self._after = 0, at - pending, None
        self._states[0][...] = state
        if rows is not None:
            self._rows[:, : self.kept] = rows[:, : self.kept]
            self.put(rows[:, self.kept :], at - pending)

    def copy(self, at: int) -> Copy:
        """Return a copy of what a pass reads that begins at a position."""
        return *super().copy(at), self._states[self._source(at)].copy()

    def sizes(self, pending: int) -> list[tuple[int, ...]]:
        """Return the shapes of a copy's arrays, with so many rows behind the state."""
        layers, kept, width = self.shape
        return [(layers, kept + pending, width), self._states[0].shape]

    def copy_from(self, other: RecentRows) -> None:
        """Take over another's contents, as a copy."""
        super().copy_from(other)
        assert isinstance(other, RecurrentRows)
        self._states = [state.copy() for state in other._states]
        self._base, self._base_at = other._base, other._base_at
        self._after, self._after_at = other._after, other._after_at

    # -- passes ---------------------------------------------------------------------------------

    def begin(self, at: int) -> tuple[FloatArray, FloatArray | None, FloatArray]:
        """Return the state that a pass reads, and those it writes before and after its tokens.

        The one before them is None if it is not needed. Whatever a failed pass must leave is kept.
        """
        source, stays = self._source(at), self.held_from is not None and at > self.held_from
        if not stays and not self.pending(at):
            self._base, self._base_at = source, at
        if source != self._after or not stays:
            self._after = None
        taken = {source, self._base, self._after}
        free = [one for one in range(_STATES) if one not in taken]
        before = None if stays or self.held_from is None or not self.pending(at) else free[0]
        self._writes = (before, free[-1])
        first = None if before is None else self._states[before]
        return self._states[source], first, self._states[free[-1]]

    def written(self, rows: FloatArray, at: int, count: int) -> None:
        """Take over the states that a pass of ``count`` tokens wrote, and its ``returned`` rows."""
        before, after = self._writes
        if self.held_from is not None:
            if before is not None:
                self._base, self._base_at = before, at
            self.put(rows, at)
            self._after, self._after_at = after, at + count
            return
        # No earlier position is gone back to.
        if rows.shape[1] == count:
            self.put(rows, at)
        else:
            self._rows[:, : self.kept] = rows
            self._first, self._end = at + count - self.kept, at + count
        self._base, self._base_at, self._after = after, at + count, None

    def returned(self, count: int) -> range:
        """Return which of a pass's rows are kept."""
        return range(0 if self.held_from is not None else max(count - self.kept, 0), count)

    def _oldest(self, at: int, end: int) -> int:
        return self._base_at

    def _source(self, at: int) -> int:
        return self._after if self._after is not None and self._is_after(at) else self._base

    def _is_after(self, at: int) -> bool:
        return self._after is not None and at == self._after_at


class RecurrentBuffers(Buffers):
    """What passes read from and write for ``RecurrentRows``."""

    _recent: RecurrentRows
    moves = True

    def begin(self, at: int, count: int) -> int:
        """See ``Buffers``; the states before a pass's tokens are returned if they are wanted."""
        recent = self._recent
        self._count, self._real = count, min(recent.real or count, count)
        self._rows = recent.before(at)
        self._returned = np.array(recent.returned(self._real), np.int64)
        super().reserve(len(self._returned))
        self._mask = (np.arange(count) < self._real).astype(np.float32)
        self._read, self._before, self._after = recent.begin(at)
        return int(self._before is not None)

    def reserve(self, count: int) -> bool:
        return False  # buffers are bound for each pass

    def written(self, at: int) -> None:
        rows = self._present[:, : len(self._returned)]
        self._recent.written(rows, at, self._real)

    def inputs(self) -> list[Bound]:
        found: list[Bound] = [
            ("real_rows", self._mask, (1, self._count, 1)),
            ("returned_rows", self._returned, self._returned.shape),
        ]
        for index, layer in enumerate(self._layers):
            for name, values in (("inputs", self._rows[index]), ("state", self._read[index])):
                found.append((f"past_{name}_{layer}", values, (1, *values.shape)))
        return found

    def outputs(self) -> list[Bound]:
        found: list[Bound] = []
        shape = (1, len(self._returned), self._present.shape[2])
        for index, layer in enumerate(self._layers):
            found.append((f"present_inputs_{layer}", self._present[index], shape))
            for name, states in (("present", self._before), ("last", self._after)):
                if states is not None:
                    state = states[index]
                    found.append((f"{name}_state_{layer}", state, (1, *state.shape)))
        return found


def buffers(recent: RecentRows, layers: tuple[int, ...]) -> Buffers:
    """Return the buffers of these rows."""
    kind = RecurrentBuffers if isinstance(recent, RecurrentRows) else Buffers
    return kind(recent, layers)
