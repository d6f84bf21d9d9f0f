"""Writes weights into the blob file, each only once even if several functions read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.coreml.blob import BlobWriter
from edgedec.coreml.types import NUMPY, Array, Constant, Kind, Stored, TensorType
from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.export.coreml.palettes import COLOURS, group_rows, palettes
from edgedec.export.parallel import ahead
from edgedec.export.quantize import PlainRounding, Rounding, whole_blocks
from edgedec.export.tensors import FloatArray, TensorReader, chunks, read

WEIGHTS = ("lut4", "int4", "int8", "fp16")
_BLOCKWISE = "constexpr_blockwise_shift_scale"
_PALETTE = "constexpr_lut_to_dense"
_PART_NUMBERS = 1 << 20
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored matrix or vector, and the operation that gives its values.

    Attributes:
        name: name of its value in every function.
        operation: ``const``, or an operation that computes it from several constants.
        value: the constant, or constants by parameter.
        type: type of the values.

    """

    name: str
    operation: str
    value: Constant | Mapping[str, Constant]
    type: TensorType


class WeightStore:
    """The weights of one decoder.

    Args:
        weights: how matrices are stored, one of ``WEIGHTS``.
        block_size: number of int4 weights that share a scale.
        head_bits: bits of a quantised head; None is those of the other matrices.
        rounding: quantises; None rounds to nearest.

    Attributes:
        errors: relative error of each quantised tensor; stacked ones have the first one's name.

    """

    def __init__(
        self,
        blob: BlobWriter,
        tensors: TensorReader,
        weights: str,
        block_size: int,
        head_bits: int | None = None,
        rounding: Rounding | None = None,
    ) -> None:
        self._blob, self._tensors = blob, tensors
        self._weights, self._block, self._head_bits = weights, block_size, head_bits
        self._rounding: Rounding = rounding or PlainRounding()
        self._stored: dict[str, Weight] = {}
        self.errors: dict[str, float] = {}

    def matrix(self, name: str, tensors: Sequence[str]) -> Weight:
        """Store stacked matrices in the layout of products, ``[out, in]``."""
        if name not in self._stored:
            if self._weights == "fp16":
                self._stored[name] = self._dense(name, tensors)
            else:
                self._stored[name] = self._quantised(name, tensors, self._weights, head=False)
        return self._stored[name]

    def head(self, tensor: str) -> Weight:
        """Store the head, which is also the embedding if the two are tied."""
        if tensor not in self._stored:
            if self._weights == "fp16":
                self._stored[tensor] = self._dense(tensor, [tensor])
            else:
                kind = "int8" if self._head_bits == 8 else self._weights
                self._stored[tensor] = self._quantised(tensor, [tensor], kind, head=True)
        return self._stored[tensor]

    def table(self, tensor: str) -> Weight:
        """Store an untied embedding, whose rows are looked up; in int8 if weights are quantised."""
        if tensor not in self._stored:
            if self._weights == "fp16":
                self._stored[tensor] = self._dense(tensor, [tensor])
            else:
                self._stored[tensor] = self._quantised(tensor, [tensor], "int8", head=False)
        return self._stored[tensor]

    def array(self, name: str, values: Array) -> Weight:
        """Store an array as it is."""
        if name not in self._stored:
            kind = {np.dtype(np.float16): Kind.FLOAT16, np.dtype(np.float32): Kind.FLOAT32}
            type = TensorType(kind[values.dtype], values.shape)
            self._stored[name] = Weight(name, "const", self._blob.add(type, [values]), type)
        return self._stored[name]

    def half(self, name: str, values: FloatArray) -> Weight:
        """Store an array in fp16."""
        return self.array(name, halved(name, values))

    def joined(self, name: str, tensors: Sequence[str]) -> Weight:
        """Store vectors, one after the other, in fp16."""
        if name not in self._stored:
            self.half(name, np.concatenate([read(self._tensors, each) for each in tensors]))
        return self._stored[name]

    def _dense(self, name: str, tensors: Sequence[str]) -> Weight:
        type = TensorType(Kind.FLOAT16, self._shape(tensors))
        parts = (halved(name, part) for part in chunks(self._tensors, tensors))
        return Weight(name, "const", self._blob.add(type, parts), type)

    def _shape(self, tensors: Sequence[str]) -> tuple[int, int]:
        shapes = [self._tensors.shape(tensor) for tensor in tensors]
        return sum(shape[0] for shape in shapes), shapes[0][1]

    def _quantised(self, name: str, tensors: Sequence[str], weights: str, *, head: bool) -> Weight:
        if weights == "lut4":
            return self._palettised(name, tensors)
        rows, columns = self._shape(tensors)
        bits = int(weights[3:])
        block = columns if bits == 8 else whole_blocks(columns, self._block, name, "coreml")
        type = TensorType(Kind.INT4 if bits == 4 else Kind.INT8, (rows, columns))
        scales: list[Array] = []
        squares = np.zeros(2)

        def digits() -> Iterator[Array]:
            take = self._rounding.head if head else self._rounding.blocks
            for done in take(self._tensors, tensors, bits, block):
                scales.append(halved(name, done.scales))
                squares[:] += done.squared_error, done.squared_weight
                # From offsets by half the range to two's complement.
                flip = np.uint8(0x88 if bits == 4 else 0x80)
                signed = done.packed.reshape(-1) ^ flip
                yield signed if bits == 4 else signed.view(np.int8)

        data = self._blob.add(type, digits())
        scale = self._blob.add(TensorType(Kind.FLOAT16, (rows, columns // block)), scales)
        self.errors[tensors[0]] = float(np.sqrt(squares[0] / max(squares[1], _SMALLEST)))
        dense = TensorType(Kind.FLOAT16, (rows, columns))
        return Weight(name, _BLOCKWISE, {"data": data, "scale": scale}, dense)

    def _palettised(self, name: str, tensors: Sequence[str]) -> Weight:
        rows, columns = self._shape(tensors)
        group = group_rows(rows)
        colours: list[Array] = []
        squares = np.zeros(2)

        def indices() -> Iterator[Array]:
            # Parts of whole groups, even if one matrix ends inside a group.
            step = max(_PART_NUMBERS // (group * columns), 1) * group
            stacked = StackedTensors(self._tensors, tensors)
            starts = range(0, rows, step)
            parts = (stacked.rows(start, min(start + step, rows)) for start in starts)
            for done in ahead(lambda part: palettes(part, group), parts):
                colours.append(done.colours[:, None, :, None])
                squares[:] += done.squared_error, done.squared_weight
                yield done.packed

        if group * columns % 2:
            raise UnsupportedArchitecture(
                f"{name} has {columns} columns, and palettes are stored in whole bytes: use"
                " --weights int8 or fp16"
            )
        data = self._blob.add(TensorType(Kind.UINT4, (rows, columns)), indices())
        table = TensorType(Kind.FLOAT16, (rows // group, 1, COLOURS, 1))
        lut = self._blob.add(table, colours)
        self.errors[tensors[0]] = float(np.sqrt(squares[0] / max(squares[1], _SMALLEST)))
        dense = TensorType(Kind.FLOAT16, (rows, columns))
        return Weight(name, _PALETTE, {"indices": data, "lut": lut}, dense)


class StackedTensors:
    """Several matrices, stacked by rows."""

    def __init__(self, tensors: TensorReader, names: Sequence[str]) -> None:
        self._tensors, self._names = tensors, names

    def rows(self, start: int, stop: int) -> FloatArray:
        """Return rows of the stack."""
        found, begin = [], 0
        for name in self._names:
            count = self._tensors.shape(name)[0]
            low, high = max(start - begin, 0), min(stop - begin, count)
            if low < high:
                found.append(self._tensors.rows(name, low, high))
            begin += count
        return np.concatenate(found)


def halved(name: str, values: FloatArray) -> Array:
    """Return numbers in fp16.

    Raises:
        InputError: some exceed its range.

    """
    with np.errstate(over="raise"):
        try:
            return values.astype(NUMPY[Kind.FLOAT16])
        except FloatingPointError:
            raise InputError(
                f"{name} has values beyond fp16, in which CoreML computes: use --format onnx"
            ) from None


__all__ = ["WEIGHTS", "Stored", "Weight", "WeightStore", "halved"]
