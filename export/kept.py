"""Keeps rounded matrices on disk, so that a graph can be written again with other ones in int8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from edgedec.export.quantize import Blocks, PlainRounding, Rounding, dequantize, quantize
from edgedec.export.tensors import FloatArray, TensorReader

_RAISED = 8


class KeptRounding:
    """Another rounding whose matrices in int4 are kept from the first time they are written.

    Those in int8 are rounded to nearest, which loses next to nothing. The first time all are
    written in int4: a rounding that reads texts follows them from the first matrix to the last.

    Args:
        inner: the rounding.
        folder: scratch space.

    """

    def __init__(self, inner: Rounding, folder: Path) -> None:
        self._inner, self._folder, self._plain = inner, folder, PlainRounding()
        self._files: dict[str, Path] = {}

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        if bits == _RAISED:
            yield from self._plain.blocks(tensors, names, bits, block_size)
            return
        for name in names:
            if name not in self._files:
                self._keep(name, self._inner.blocks(tensors, [name], bits, block_size))
            yield self._read(name)

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        if bits == _RAISED:
            yield from self._plain.head(tensors, names, bits, block_size)
            return
        (name,) = names
        if name not in self._files:
            self._keep(name, self._inner.head(tensors, names, bits, block_size))
        yield self._read(name)

    def find(self, name: str) -> Blocks | None:
        """Return a matrix in int4, if it was written so."""
        return self._read(name) if name in self._files else None

    def _keep(self, name: str, parts: Iterator[Blocks]) -> None:
        found = list(parts)
        file = self._folder / f"{len(self._files)}.npz"
        np.savez(
            file,
            allow_pickle=False,
            packed=np.concatenate([part.packed for part in found]),
            scales=np.concatenate([part.scales for part in found]),
            squares=np.sum([(part.squared_error, part.squared_weight) for part in found], axis=0),
        )
        self._files[name] = file

    def _read(self, name: str) -> Blocks:
        with np.load(self._files[name]) as stored:
            return Blocks(stored["packed"], stored["scales"], *map(float, stored["squares"]))


class KeptTensors:
    """A decoder's tensors with all matrices in int4, as they were written.

    Those that were not, as embeddings apart from the head, are rounded to nearest when they are
    read. One matrix is in memory at a time.
    """

    def __init__(self, inner: TensorReader, kept: KeptRounding, block_size: int) -> None:
        self._inner, self._kept, self._block = inner, kept, block_size
        self._last: tuple[str, Blocks | None] = "", None

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        if len(self.shape(name)) < 2:
            return self._inner.rows(name, start, stop)
        if self._last[0] != name:
            self._last = name, self._kept.find(name)
        found = self._last[1]
        if found is None:
            found = quantize(self._inner.rows(name, start, stop), 4, self._block)
            start, stop = 0, stop - start
        part = found.packed[start:stop], found.scales[start:stop]
        return dequantize(*part, 4, self.shape(name)[1])
