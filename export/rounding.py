"""Rounds matrices to blocks of small integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edgedec.export.parallel import ahead
from edgedec.export.quantize import Blocks, quantize
from edgedec.export.tensors import TensorReader, chunks


class Rounding(Protocol):
    """Quantises the matrices of a decoder, in the order in which data flows through them."""

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """Yield the rows of several matrices, stacked, in parts."""
        ...

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """Yield those of the head, after all other matrices."""
        ...


class PlainRounding:
    """Rounds to nearest: each block by itself, with the scale of least squared error."""

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """See ``Rounding``."""
        return ahead(lambda part: quantize(part, bits, block_size), chunks(tensors, names))

    head = blocks
