"""Canonical tensors from stored ones: split, transposed and shifted as they are read."""

from __future__ import annotations

import numpy as np

from edgedec.errors import CheckpointError
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource


class CanonicalTensors:
    """The tensors a spec names, over a reader of those that a checkpoint holds.

    Memory holds only the rows that are asked for and, for a matrix stored as ``[in, out]``, a chunk
    of bounded size.
    """

    def __init__(self, stored: TensorReader, spec: DecoderSpec) -> None:
        self._stored, self._shapes, self._origins = stored, spec.tensors(), spec.origins()

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
        return whole + np.float32(source.plus) if source.plus else whole

    def _read(self, source: TensorSource, name: str, first: int, last: int) -> FloatArray:
        if not source.transposed:
            return self._stored.rows(name, first, last)
        rows, columns = self._stored.shape(name)
        step = max(CHUNK_NUMBERS // columns, 1)
        found = np.empty((last - first, rows), np.float32)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            found[:, start:stop] = self._stored.rows(name, start, stop)[:, first:last].T
        return found
