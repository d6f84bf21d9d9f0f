"""Where an emitter reads weights from: by name, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

# Numbers in one chunk of rows: 16 MiB of float32, small beside any model worth streaming.
CHUNK_NUMBERS = 1 << 22


class TensorReader(Protocol):
    """Named tensors, read as float32."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of a tensor; CheckpointError when there is none of this name."""
        ...

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        """``tensor[start:stop]`` as float32."""
        ...


def read(tensors: TensorReader, name: str) -> FloatArray:
    """A whole tensor as float32."""
    return tensors.rows(name, 0, tensors.shape(name)[0])


def chunks(tensors: TensorReader, names: Sequence[str]) -> Iterator[FloatArray]:
    """The rows of several tensors one after the other, in chunks of bounded size."""
    for name in names:
        shape = tensors.shape(name)
        step = max(CHUNK_NUMBERS // int(np.prod(shape[1:])), 1)
        for start in range(0, shape[0], step):
            yield tensors.rows(name, start, min(start + step, shape[0]))


class MemoryTensors:
    """Tensors that are in memory already; for tests and for single layers."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        return self._tensors[name][start:stop].astype(np.float32)
