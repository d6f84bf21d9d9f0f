"""Weights and products in standard operators: plain matrices, or integers and their scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.graph import GraphWriter
from edgedec.export.quantize import ByteArray, PlainRounding, Rounding, WeightForm, whole_blocks
from edgedec.export.tensors import FloatArray, TensorReader, chunks, read
from edgedec.export.weights import Format, halved
from edgedec.models.traits import Experts

FORMAT = "onnx-static"
_SMALLEST = 1e-30
_FLOAT = 1
# Bytes of a matrix that are transposed at a time.
_STRIP_BYTES = 1 << 24


class _StandardFormat:
    """Implements ``edgedec.export.weights.Format`` for one of the graphs that share a file."""

    def __init__(self, graph: GraphWriter, tensors: TensorReader, errors: dict[str, float]) -> None:
        self.errors = errors
        self._graph, self._tensors = graph, tensors

    def mixture(self, x: str, logits: str, out: str, weights: Sequence[str], kind: Experts) -> str:
        """Refuse: the emitter has done so before."""
        raise UnsupportedArchitecture(f"the format {FORMAT} cannot hold a mixture of experts")

    def _joined(self, names: Sequence[str]) -> str:
        whole = np.concatenate([read(self._tensors, name) for name in names])
        return self._graph.constant("+".join(names), whole)


class PlainProducts(_StandardFormat):
    """fp32, or fp16 that is cast where it is used; matrices stay ``[out, in]``."""

    def __init__(
        self, graph: GraphWriter, tensors: TensorReader, errors: dict[str, float], half: bool
    ) -> None:
        super().__init__(graph, tensors, errors)
        self._half = half

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        stored = self._whole(self._table("+".join(weights), weights))
        bias = [self._joined(biases)] if biases else []
        return self._graph.node("Gemm", [x, stored, *bias], out, transB=1)

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        g, stored = self._graph, self._table(table, [table])
        if not self._half:
            return g.node("Gather", [stored, ids], out, axis=0)
        return g.node("Cast", [g.node("Gather", [stored, ids], f"{out}.half")], out, to=_FLOAT)

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        stored = self._whole(self._table(table, [table]))
        return self._graph.node("Gemm", [x, stored, *([mask] if mask else [])], out, transB=1)

    def _table(self, name: str, tensors: Sequence[str]) -> str:
        if name in self._graph:
            return name
        parts, shape = chunks(self._tensors, tensors), stacked_shape(self._tensors, tensors)
        if not self._half:
            return self._graph.stream(name, np.float32, shape, parts)
        halves = (halved(tensors[0], part) for part in parts)
        return self._graph.stream(name, np.float16, shape, halves)

    def _whole(self, stored: str) -> str:
        if not self._half:
            return stored
        g, whole = self._graph, f"{stored}.float32"
        return whole if whole in g else g.node("Cast", [stored], whole, to=_FLOAT)


class IntegerProducts(_StandardFormat):
    """Integers that ``DequantizeLinear`` converts: int4 in blocks, int8 by channel.

    Matrices are stored ``[in, out]``, as for ``MatMul``: ONNX Runtime fuses the two operators on
    the processor, without materialising the converted matrix. The embedding is a separate table of
    int8 rows with a scale each.
    """

    def __init__(
        self,
        graph: GraphWriter,
        tensors: TensorReader,
        errors: dict[str, float],
        form: WeightForm,
        rounding: Rounding,
    ) -> None:
        super().__init__(graph, tensors, errors)
        self._rounding, self._bits, self._block = rounding, form.bits, form.block_size
        self._head_bits = form.head_bits or form.bits

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        g, name = self._graph, "+".join(weights)
        whole = self._whole(name, self._matrix(name, weights, self._bits, head=False))
        if not biases:
            return g.node("MatMul", [x, whole], out)
        product = g.node("MatMul", [x, whole], f"{out}.product")
        return g.node("Add", [product, self._joined(biases)], out)

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        g = self._graph
        whole = self._whole(table, self._matrix(table, [table], self._head_bits, head=True))
        product = g.node("MatMul", [x, whole], f"{out}.product" if mask else out)
        return g.node("Add", [product, mask], out) if mask else product

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        g, stored = self._graph, f"{table}.rows"
        if stored not in g:
            scales: list[FloatArray] = []
            shape = stacked_shape(self._tensors, [table])
            rows = self._integers(table, [table], 8, shape[1], scales)
            self._graph.stream(stored, np.int8, shape, (part.view(np.int8) for part in rows))
            self._graph.constant(f"{stored}.scales", np.concatenate(scales))
        integers = g.node("Gather", [stored, ids], f"{out}.integers", axis=0)
        numbers = g.node("Cast", [integers], f"{out}.numbers", to=_FLOAT)
        scale = g.node("Gather", [f"{stored}.scales", ids], f"{out}.scales", axis=0)
        return g.node("Mul", [numbers, scale], out)

    def _whole(self, name: str, block: int) -> str:
        g, whole = self._graph, f"{name}.whole"
        if whole in g:
            return whole
        form = {"axis": 0, "block_size": block} if block else {"axis": 1}
        return g.node("DequantizeLinear", [f"{name}.integers", f"{name}.scales"], whole, **form)

    def _matrix(self, name: str, tensors: Sequence[str], bits: int, *, head: bool) -> int:
        """Store a matrix, ``[in, out]``; return its block size, or 0 for one scale per channel."""
        rows, columns = stacked_shape(self._tensors, tensors)
        block = whole_blocks(columns, self._block, name, FORMAT) if bits == 4 else 0
        stored = f"{name}.integers"
        if stored in self._graph:
            return block
        scales: list[FloatArray] = []
        parts = self._integers(name, tensors, bits, block or columns, scales, head=head)
        whole = np.concatenate([part.reshape(len(part), -1) for part in parts])
        turned, dims = _turned(whole, bits), (columns, rows)
        if bits == 4:
            self._graph.data.stream_int4(stored, dims, turned)
        else:
            self._graph.stream(stored, np.int8, dims, (part.view(np.int8) for part in turned))
        scale = np.concatenate(scales)
        self._graph.constant(f"{name}.scales", scale.T if block else scale.reshape(-1))
        return block

    def _integers(
        self,
        name: str,
        tensors: Sequence[str],
        bits: int,
        block: int,
        scales: list[FloatArray],
        *,
        head: bool = False,
    ) -> Iterator[ByteArray]:
        """Yield rows of signed integers, packed, and collect their scales in ``scales``."""
        squares = np.zeros(2)
        take = self._rounding.head if head else self._rounding.blocks
        for done in take(self._tensors, tensors, bits, block):
            scales.append(done.scales)
            squares[:] += done.squared_error, done.squared_weight
            # From offsets by half the range to two's complement.
            yield done.packed ^ np.uint8(0x88 if bits == 4 else 0x80)
        self.errors[name] = float(np.sqrt(squares[0] / max(squares[1], _SMALLEST)))


def products(
    form: WeightForm,
    graph: GraphWriter,
    tensors: TensorReader,
    errors: dict[str, float],
    rounding: Rounding | None = None,
) -> Format:
    """Return the products of one graph, which collects quantisation errors in ``errors``."""
    if form.name in ("fp16", "fp32"):
        return PlainProducts(graph, tensors, errors, half=form.name == "fp16")
    return IntegerProducts(graph, tensors, errors, form, rounding or PlainRounding())


def _turned(packed: ByteArray, bits: int) -> Iterator[ByteArray]:
    """Transpose a matrix of packed integers; yield the packed rows of the result."""
    rows, width = packed.shape
    step = max(_STRIP_BYTES // max(rows, 1), 1)
    for start in range(0, width, step):
        strip = packed[:, start : start + step]
        if bits == 8:
            yield np.ascontiguousarray(strip.T)
            continue
        digits = np.stack((strip & 15, strip >> 4), axis=-1).reshape(rows, -1)
        flat = np.ascontiguousarray(digits.T).reshape(-1)
        yield flat[0::2] | (flat[1::2] << np.uint8(4))


def stacked_shape(tensors: TensorReader, names: Sequence[str]) -> tuple[int, int]:
    """Return rows and columns of stacked matrices."""
    return sum(tensors.shape(name)[0] for name in names), tensors.shape(names[0])[1]
