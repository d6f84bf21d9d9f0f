"""Integer products: int8 weights, and activations quantised with ranges measured on texts.

An input is rounded to its grid, multiplied by int8 weights, and the product is rounded to a grid as
well, each with a QuantizeLinear and a DequantizeLinear, as compilers for NPUs expect them around an
integer product. Output channels differ in magnitude but share one grid, so each is divided by its
own range before (in the scale of its weights) and multiplied by it afterwards.

Input channels beyond the grid are clipped. The excess is multiplied in floating point by their
columns of the weights and added (shadow outlier execution, llm.npu, 2407.05858).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from edgedec.export.graph import GraphWriter
from edgedec.export.onnx_static.weights import IntegerProducts, PlainProducts, stacked_shape
from edgedec.export.quantize import PlainRounding, WeightForm
from edgedec.export.ranges import Grid, Range, Ranges
from edgedec.export.tensors import FloatArray, TensorReader, chunks

_SMALLEST = 1e-12
_TYPES = {8: np.uint8, 16: np.uint16}
# Channels of a product, divided by their ranges.
_OUTPUTS = {bits: Grid.over(-1.0, 1.0, bits) for bits in _TYPES}


class IntegerActivations(IntegerProducts):
    """int8 weights by output channel, ``[out, in]``, times activations of 8 or 16 bits."""

    def __init__(
        self, graph: GraphWriter, tensors: TensorReader, errors: dict[str, float], ranges: Ranges
    ) -> None:
        super().__init__(graph, tensors, errors, WeightForm("int8"), PlainRounding())
        self._ranges = ranges
        # Qualcomm's NPU looks up no integers.
        self._plain = PlainProducts(graph, tensors, errors, half=True)

    def embed(self, ids: str, out: str, table: str, shared: bool) -> str:
        return self._plain.embed(ids, out, table, shared)

    def linear(self, x: str, out: str, weights: Sequence[str], biases: Sequence[str]) -> str:
        known = self._ranges.of(weights)
        whole = self._product(x, f"{out}.product" if biases else out, weights, known)
        return self._graph.node("Add", [whole, self._joined(biases)], out) if biases else whole

    def head(self, x: str, out: str, table: str, mask: str | None) -> str:
        known = self._ranges.of([table])
        logits = self._product(x, f"{out}.product" if mask else out, [table], known)
        return self._graph.node("Add", [logits, mask], out) if mask else logits

    def _product(self, x: str, out: str, weights: Sequence[str], known: Range) -> str:
        g, name, bits = self._graph, "+".join(weights), known.grid.bits
        ranges = g.constant(f"{name}.ranges", known.peaks)
        within = self._clipped(f"{out}.clipped", x, known.grid) if known.outliers else x
        fed = self._rounded(f"{out}.x", within, known.grid)
        integers = g.node("Gemm", [fed, self._matrix_of(name, weights, known)], f"{out}.even",
                          transB=1)  # fmt: skip
        even = self._rounded(f"{out}.rounded", integers, _OUTPUTS[bits])
        if not known.outliers:
            return g.node("Mul", [even, ranges], out)
        product = g.node("Mul", [even, ranges], f"{out}.within")
        return g.node("Add", [product, self._beyond(out, (x, within), weights, known)], out)

    def _clipped(self, out: str, x: str, grid: Grid) -> str:
        """Emit a value clipped to the ends of a grid.

        QuantizeLinear does the same, but if a sum reads the DequantizeLinear after it, Qualcomm's
        NPU uses the unclipped input, and OpenVINO ignores 16-bit grids.
        """
        g = self._graph
        ends = [g.constant(f"end.{float(end)!r}", np.array(end, np.float32)) for end in grid.ends]
        return g.node("Clip", [x, *ends], out)

    def _rounded(self, out: str, x: str, grid: Grid) -> str:
        g = self._graph
        at = f"grid.{grid.bits}.{float(grid.scale)!r}.{grid.zero}"
        scale = g.constant(f"{at}.scale", np.array(grid.scale, np.float32))
        zero = g.constant(f"{at}.zero", np.array(grid.zero, _TYPES[grid.bits]))
        integers = g.node("QuantizeLinear", [x, scale, zero], f"{out}.integers")
        return g.node("DequantizeLinear", [integers, scale, zero], out)

    def _matrix_of(self, name: str, weights: Sequence[str], known: Range) -> str:
        """Emit a matrix whose rows are divided by the ranges of their outputs."""
        g, stored = self._graph, f"{name}.integers"
        if stored not in g:
            scales: list[FloatArray] = []
            parts = self._rows(name, weights, scales)
            g.stream(stored, np.int8, stacked_shape(self._tensors, weights), parts)
            g.constant(f"{name}.scales", np.concatenate(scales) / known.peaks)
        return g.node("DequantizeLinear", [stored, f"{name}.scales"], f"{name}.whole", axis=0)

    def _rows(
        self, name: str, weights: Sequence[str], scales: list[FloatArray]
    ) -> Iterator[npt.NDArray[np.int8]]:
        """Yield rows of integers; ``scales`` gets theirs.

        Unlike those of ``quantize`` they are positive: Qualcomm's NPU computes wrongly with others.
        """
        squares = np.zeros(2)
        for part in chunks(self._tensors, weights):
            scale = np.maximum(np.abs(part).max(axis=1) / np.float32(127), _SMALLEST)
            rounded = np.rint(part / scale[:, None])
            scales.append(scale)
            squares += np.square(part - rounded * scale[:, None]).sum(), np.square(part).sum()
            yield rounded.astype(np.int8)
        self.errors[name] = float(np.sqrt(squares[0] / max(squares[1], _SMALLEST)))

    def _beyond(
        self, out: str, values: tuple[str, str], weights: Sequence[str], known: Range
    ) -> str:
        """Emit the product of the outliers' excess; ``values`` are the input and it clipped."""
        g, name = self._graph, f"{'+'.join(weights)}.outliers"
        if f"{name}.columns" not in g:
            chosen = list(known.outliers)
            columns = np.concatenate([part[:, chosen] for part in chunks(self._tensors, weights)])
            g.constant(f"{name}.columns", np.ascontiguousarray(columns.T))
        channels = g.constant(name, np.array(known.outliers, np.int32))
        outliers, within = (
            g.node("Gather", [each, channels], f"{out}.outliers.{index}", axis=1)
            for index, each in enumerate(values)
        )
        beyond = g.node("Sub", [outliers, within], f"{out}.excess")
        return g.node("MatMul", [beyond, f"{name}.columns"], f"{out}.beyond")
