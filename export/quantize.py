"""Block-wise int4 and int8 in the layout of ONNX Runtime's MatMulNBits.

A row of weights is cut into blocks; a block is stored as small unsigned integers and one
scale, ``w ~ scale * (q - 2^(bits - 1))``. The scale is not the largest weight over the largest
integer: among a few candidates around it, the one with the least squared error is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.parallel import ahead
from edgedec.export.tensors import (
    CHUNK_NUMBERS,
    FloatArray,
    HoldsBlocks,
    TensorReader,
    blocks_of,
    chunks,
)

ByteArray = npt.NDArray[np.uint8]

# Blocks worked on at a time: 32 x 4096 float32 and its copies stay in a core's cache.
_TILE = 4096
_SMALLEST = 1e-30
_SMALLEST_BLOCK = 16
BLOCK_SIZES = (16, 32, 64, 128, 256)
# Range of factors by which the largest weight may exceed, or stay below, the largest integer.
_REACH = {4: (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0), 8: (-1.0, 0.0, 1.0)}


FORMATS = ("int4", "int8", "fp16", "fp32")
# Each matrix in int4 or int8, by what it loses; and what a mixture of both is called.
AUTO, MIXED = "auto", "int4+int8"


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The form in which weights are stored.

    Attributes:
        name: ``int4``, ``int8``, ``fp16`` or ``fp32``.
        block_size: quantised weights that share a scale.
        head_bits: of a quantised head; None is as the other matrices.
        raised: matrices of an int4 model that are stored in int8.
        raised_block: weights in int8 that share a scale, where whole blocks of so many fit; None is
            as the others.

    """

    name: str
    block_size: int = 32
    head_bits: int | None = None
    raised: frozenset[str] = frozenset()
    raised_block: int | None = None

    @property
    def bits(self) -> int:
        """Bits of a weight in a quantised matrix."""
        return int(self.name[3:])

    def bits_of(self, matrix: str) -> int:
        """Bits of a weight in this matrix."""
        return 8 if matrix in self.raised else self.bits

    def block_of(self, bits: int, columns: int) -> int:
        """Return the weights that share a scale in a matrix of so many bits and columns."""
        own = self.raised_block if bits > self.bits else None
        return self.block_size if own is None or columns % own else max(own, self.block_size)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Quantised rows.

    Attributes:
        packed: ``[rows, blocks, block_size * bits / 8]``; of two int4 the first is the low half.
        scales: ``[rows, blocks]`` float32.
        squared_error: sum over all weights of the squared difference.
        squared_weight: sum of the squared weights.

    """

    packed: ByteArray
    scales: FloatArray
    squared_error: float
    squared_weight: float


def quantize(weights: FloatArray, bits: int, block_size: int) -> Blocks:
    """Quantise ``[rows, columns]`` float32; a last partial block is filled with zeros."""
    rows, columns = weights.shape
    blocks = -(-columns // block_size)
    if columns % block_size:
        weights = np.pad(weights, ((0, 0), (0, blocks * block_size - columns)))
    flat = weights.reshape(rows * blocks, block_size)
    packed = np.empty((len(flat), block_size * bits // 8), np.uint8)
    scales = np.empty(len(flat), np.float32)
    error = total = 0.0
    for start in range(0, len(flat), _TILE):
        tile = slice(start, start + _TILE)
        # Blocks as columns: sums over a block are then sums of whole contiguous rows.
        w = np.ascontiguousarray(flat[tile].T)
        scales[tile], q = fit_scales(w, bits)
        packed[tile] = pack(q, bits)
        total += float(np.vdot(w, w))
        w -= q * scales[tile]
        error += float(np.vdot(w, w))
    shape = (rows, blocks, packed.shape[1])
    return Blocks(packed.reshape(shape), scales.reshape(rows, blocks), error, total)


def dequantize(packed: ByteArray, scales: FloatArray, bits: int, columns: int) -> FloatArray:
    """Return the weights that the runtime computes with, ``[rows, columns]`` float32."""
    q = packed
    if bits == 4:
        q = np.stack((packed & 15, packed >> 4), axis=-1).reshape(*packed.shape[:2], -1)
    weights = q.astype(np.float32)
    weights -= np.float32(2.0 ** (bits - 1))
    weights *= scales[..., None]
    dense: FloatArray = weights.reshape(len(packed), -1)[:, :columns]
    return dense


def fit_scales(w: FloatArray, bits: int) -> tuple[FloatArray, FloatArray]:
    """Return scales ``[blocks]`` and integers ``[block_size, blocks]`` (as float32) of least error.

    For given integers q the best scale is (w.q)/(q.q), and the error then falls short of w.w
    by (w.q)^2/(q.q): the candidate with the largest such gain wins.
    """
    largest = w[np.abs(w).argmax(axis=0), np.arange(w.shape[1])]
    # The negative side reaches one integer further, so the largest weight goes there. What is
    # too small to divide by is zero.
    empty = np.abs(largest) < _SMALLEST
    unit = np.where(empty, np.float32(1), -largest)
    normal = w / unit
    q, product = np.empty_like(w), np.empty_like(w)
    gain, fit = np.full_like(unit, -1), np.zeros_like(unit)
    half = 2.0 ** (bits - 1)
    best = np.full_like(unit, half)
    for reach in _REACH[bits]:
        stretch = np.float32(reach + half)
        round_to(normal, stretch, bits, q)
        dot = np.multiply(normal, q, out=product).sum(axis=0)
        norm = np.multiply(q, q, out=product).sum(axis=0)
        candidate = dot / np.maximum(norm, 1)
        better = dot * candidate > gain
        gain = np.where(better, dot * candidate, gain)
        fit = np.where(better, candidate, fit)
        best = np.where(better, stretch, best)
    round_to(normal, np.where(empty, np.float32(0), best), bits, q)
    return np.where(empty, np.float32(0), fit * unit), q


def round_to(
    values: FloatArray, factor: FloatArray | np.float32, bits: int, out: FloatArray
) -> None:
    """Write the nearest integers of ``values * factor`` that ``bits`` can hold."""
    np.multiply(values, factor, out=out)
    np.rint(out, out=out)
    np.clip(out, -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1, out=out)


def pack(q: FloatArray, bits: int) -> ByteArray:
    """Return the bytes of integers ``[block_size, blocks]``, ``[blocks, bytes]``."""
    unsigned: ByteArray = (q.T + 2.0 ** (bits - 1)).astype(np.uint8)
    if bits == 4:
        unsigned = unsigned[:, 0::2] | (unsigned[:, 1::2] << np.uint8(4))
    return unsigned


def whole_blocks(columns: int, block: int, name: str, format: str) -> int:
    """Return the largest block, of at most this size, that cuts rows into whole ones.

    Raises:
        UnsupportedArchitecture: there is none worth its scales.

    """
    while block >= _SMALLEST_BLOCK:
        if columns % block == 0:
            return block
        block //= 2
    raise UnsupportedArchitecture(
        f"{name} has {columns} columns, and the {format} format cuts int4 into whole blocks of"
        f" {_SMALLEST_BLOCK} or more: use --weights int8 or fp16"
    )


# -- rounding the matrices of a decoder ---------------------------------------------------------


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
    """Rounds to nearest: each block by itself, with the scale of least squared error.

    Blocks of a quantised source that fit are copied, not rounded again.
    """

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        for name in names:
            held = blocks_of(tensors, name, bits, block_size)
            if held is not None:
                yield from _copied(held, name, bits, block_size)
            else:
                parts = chunks(tensors, [name])
                yield from ahead(lambda part: quantize(part, bits, block_size), parts)

    head = blocks


def _copied(tensors: HoldsBlocks, name: str, bits: int, block_size: int) -> Iterator[Blocks]:
    """Yield a matrix's blocks as its source holds them, in as many parts as rounding has."""
    rows, columns = tensors.shape(name)
    step = max(CHUNK_NUMBERS // columns, 1)
    for start in range(0, rows, step):
        q, scales = tensors.numbers(name, start, min(start + step, rows))
        packed = pack(q.reshape(-1, block_size).T, bits).reshape(*scales.shape, -1)
        dense = dequantize(packed, scales, bits, columns)
        yield Blocks(packed, scales, 0.0, float(np.vdot(dense, dense)))
