"""Sources of weights for an emitter: by name, a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from edgedec.errors import CheckpointError
from edgedec.models.sources import TensorSource

FloatArray = npt.NDArray[np.float32]

# Numbers in one chunk of rows: 16 MiB of float32, small compared with any model worth streaming.
CHUNK_NUMBERS = 1 << 22


class TensorReader(Protocol):
    """Named tensors, read as float32."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's extents; raises CheckpointError when there is none of this name."""
        ...

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        """Return ``tensor[start:stop]`` as float32."""
        ...


def read(tensors: TensorReader, name: str) -> FloatArray:
    """Return a whole tensor as float32."""
    return tensors.rows(name, 0, tensors.shape(name)[0])


def chunks(tensors: TensorReader, names: Sequence[str]) -> Iterator[FloatArray]:
    """Yield the rows of several tensors in chunks of bounded size."""
    for name in names:
        yield from row_chunks(tensors, name, 0, tensors.shape(name)[0], CHUNK_NUMBERS)


def row_chunks(
    tensors: TensorReader, name: str, start: int, stop: int, numbers: int
) -> Iterator[FloatArray]:
    """Yield ``tensor[start:stop]`` in chunks of at most ``numbers`` values, or one row."""
    step = max(numbers // int(np.prod(tensors.shape(name)[1:])), 1)
    for first in range(start, stop, step):
        yield tensors.rows(name, first, min(first + step, stop))


class CanonicalTensors:
    """Canonical tensors, over a reader of those that a checkpoint holds.

    Memory holds only the rows that are asked for and, for a matrix stored as ``[in, out]``, a chunk
    of bounded size.

    Args:
        stored: the reader.
        shapes: of the canonical tensors, by name.
        origins: where and in which form each is stored.

    """

    def __init__(
        self,
        stored: TensorReader,
        shapes: Mapping[str, tuple[int, ...]],
        origins: Mapping[str, TensorSource],
    ) -> None:
        self._stored, self._shapes, self._origins = stored, shapes, origins

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise CheckpointError(f"the decoder has no tensor {name}")
        return self._shapes[name]

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        shape, source = self.shape(name), self._origins[name]
        parts = [
            self._read(source, *run) for run in source.runs(start, min(stop, shape[0]), shape[0])
        ]
        if not parts:
            return np.empty((0, *shape[1:]), np.float32)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if source.log:
            whole = -np.exp(whole)
        return whole + np.float32(source.plus) if source.plus else whole

    def _read(self, source: TensorSource, name: str, first: int, last: int) -> FloatArray:
        if source.stack:
            return self._of_stack(name, first, last)
        if not source.transposed:
            return self._stored.rows(name, first, last)
        rows, columns = self._stored.shape(name)
        step = max(CHUNK_NUMBERS // columns, 1)
        found = np.empty((last - first, rows), np.float32)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            found[:, start:stop] = self._stored.rows(name, start, stop)[:, first:last].T
        return found

    def _of_stack(self, name: str, first: int, last: int) -> FloatArray:
        """Return rows of matrices that lie one under the other, reading one at a time."""
        size = self._stored.shape(name)[1]
        found = []
        while first < last:
            matrix, row = divmod(first, size)
            count = min(last - first, size - row)
            found.append(self._stored.rows(name, matrix, matrix + 1)[0, row : row + count])
            first += count
        return np.concatenate(found)


class InterleavedTensors:
    """Two matrices of another reader with their rows interleaved."""

    def __init__(self, inner: TensorReader, first: str, second: str) -> None:
        self._inner, self._names = inner, (first, second)

    def shape(self, name: str) -> tuple[int, ...]:
        rows, columns = self._inner.shape(self._names[0])
        return 2 * rows, columns

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        first = start // 2
        both = [self._inner.rows(each, first, -(-stop // 2)) for each in self._names]
        whole: FloatArray = np.stack(both, axis=1).reshape(-1, both[0].shape[1])
        return whole[start - 2 * first : stop - 2 * first]


class PaddedTensors:
    """Another reader with rows of zeros appended to some of its tensors."""

    def __init__(self, inner: TensorReader, rows: Mapping[str, int]) -> None:
        self._inner, self._rows = inner, rows

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self._inner.shape(name)
        return (self._rows.get(name, shape[0]), *shape[1:])

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        stored = self._inner.shape(name)[0]
        part = self._inner.rows(name, min(start, stored), min(stop, stored))
        if name not in self._rows or len(part) == stop - start:
            return part
        whole = np.zeros((stop - start, *part.shape[1:]), np.float32)
        whole[: len(part)] = part
        return whole

    def fits(self, name: str, bits: int, block_size: int) -> bool:
        same = self.shape(name) == self._inner.shape(name)
        return same and blocks_of(self._inner, name, bits, block_size) is not None

    def numbers(self, name: str, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        return cast(HoldsBlocks, self._inner).numbers(name, start, stop)


class ChosenRows:
    """Another reader with one matrix more, or another one: some rows of a stored matrix.

    Args:
        name: of the new matrix.
        stored: the matrix that has its rows.
        rows: which, ascending.

    """

    def __init__(self, inner: TensorReader, name: str, stored: str, rows: Sequence[int]) -> None:
        self._inner, self._name, self._stored = inner, name, stored
        self._rows = np.array(rows, np.int64)

    def shape(self, name: str) -> tuple[int, ...]:
        if name != self._name:
            return self._inner.shape(name)
        return (len(self._rows), *self._inner.shape(self._stored)[1:])

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        if name != self._name:
            return self._inner.rows(name, start, stop)
        wanted = self._rows[start:stop]
        found = [np.empty((0, *self.shape(name)[1:]), np.float32)]
        step = max(CHUNK_NUMBERS // self.shape(name)[1], 1)
        while len(wanted):
            first = int(wanted[0])
            near = wanted[wanted < first + step]
            part = self._inner.rows(self._stored, first, int(near[-1]) + 1)
            found.append(part[near - first])
            wanted = wanted[len(near) :]
        return np.concatenate(found)


class ScaledTensors:
    """Another reader with rows and columns of some tensors multiplied by factors."""

    def __init__(self, inner: TensorReader) -> None:
        self._inner = inner
        self._rows: dict[str, FloatArray] = {}
        self._columns: dict[str, FloatArray] = {}

    def multiply_rows(self, name: str, factors: FloatArray) -> None:
        """Multiply rows from now on; ``factors`` ``[rows]``."""
        self._rows[name] = self._rows.get(name, np.float32(1)) * factors

    def multiply_columns(self, name: str, factors: FloatArray) -> None:
        """Multiply columns from now on; ``factors`` ``[columns]``."""
        self._columns[name] = self._columns.get(name, np.float32(1)) * factors

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        part = self._inner.rows(name, start, stop)
        if name in self._rows:
            part = (part.T * self._rows[name][start:stop]).T
        if name in self._columns:
            part = part * self._columns[name]
        return part


class HoldsBlocks(TensorReader, Protocol):
    """A reader whose matrices may be stored as whole numbers in blocks, each with a scale."""

    def fits(self, name: str, bits: int, block_size: int) -> bool:
        """Return whether a matrix is ``scale * q``, with q of so many bits, in such blocks."""
        ...

    def numbers(self, name: str, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        """Return rows as q ``[rows, columns]`` and scales ``[rows, blocks]``, both float32."""
        ...


def blocks_of(tensors: TensorReader, name: str, bits: int, block_size: int) -> HoldsBlocks | None:
    """Return a reader as one of blocks if it holds such ones of a matrix, and None if not."""
    fits = getattr(tensors, "fits", None)
    if fits is None or not fits(name, bits, block_size):
        return None
    return cast(HoldsBlocks, tensors)


class CountedTensors:
    """Another reader that reports how many values were read so far."""

    def __init__(self, inner: TensorReader, on_read: Callable[[int], None]) -> None:
        self._inner, self._on_read = inner, on_read
        self._done = 0

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        part = self._inner.rows(name, start, stop)
        self._done += part.size
        self._on_read(self._done)
        return part

    def fits(self, name: str, bits: int, block_size: int) -> bool:
        return blocks_of(self._inner, name, bits, block_size) is not None

    def numbers(self, name: str, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        found = cast(HoldsBlocks, self._inner).numbers(name, start, stop)
        self._done += found[0].size
        self._on_read(self._done)
        return found
