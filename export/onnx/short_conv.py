"""A short convolution in attention's place, with what it keeps of a text.

The graph reads the inputs of the tokens before a pass and returns those of the pass's own rows: a
runtime keeps as many of them as it can go back, and a rejected row is one that it does not keep.
"""

from __future__ import annotations

import numpy as np

from edgedec.export.onnx.parts import GraphParts
from edgedec.export.onnx.recurrence import RETURNED, MixerWriter
from edgedec.export.tensors import read
from edgedec.models.mixers import ShortConv

# Past the end of any slice.
_END = np.iinfo(np.int64).max


class Convolution:
    """Emits the convolution of a layer: each channel by itself, over the last tokens.

    Products and sums of whole rows, so that a row's bits do not depend on how many are computed
    with it, whatever the kernels are. All rows of a pass are returned, since later tokens read
    them; of a recurrence, whose rows are long, those that an input lists.

    Args:
        parts: of the graph.
        layer: the layer.
        taps: tokens that it reads.
        width: channels.
        more: numbers of a row that are not convolved and follow those that are, of a recurrence.

    Attributes:
        own: the value with the pass's rows, which the caller emits.

    """

    def __init__(self, parts: GraphParts, layer: int, taps: int, width: int, more: int = 0) -> None:
        self._parts, self._graph, self._layer = parts, parts.graph, layer
        self._taps, self._width, self._more = taps, width, more
        self._shown, self._count = f"present_inputs_{layer}", f"layers.{layer}.pending"
        self.own = f"layers.{layer}.row" if more else self._shown

    def emit(self, rows: str = "") -> str:
        """Emit it over the pass's rows; with ``rows``, only those that an input lists."""
        return self._convolved(self._rows(self._taps - 1), rows)

    def pending(self) -> tuple[str, str, str]:
        """Emit it over rows that were kept, too.

        Returns:
            The convolved numbers of all rows, the others, and how many rows are not the pass's.

        """
        g, at = self._graph, f"layers.{self._layer}"
        both = self._rows("p")
        widths = np.array([self._width, self._more], np.int64)
        sizes = g.constant(f"sizes.{self._width}+{self._more}", widths)
        inputs, others = g.nodes("Split", [both, sizes], [f"{at}.taken", f"{at}.others"], axis=-1)
        kept = self._axis(self._taps - 1)
        length = g.node("Shape", [f"past_inputs_{self._layer}"], f"{at}.length", start=1, end=2)
        g.node("Sub", [length, kept], self._count)
        others = g.node("Slice", [others, kept, *map(self._axis, (_END, 1))], f"{at}.alone")
        return self._convolved(inputs, ""), others, self._count

    def own_rows(self, x: str) -> str:
        """Emit the pass's own rows of a value that has those that were kept, too."""
        cut = [self._count, *map(self._axis, (_END, 1))]
        return self._graph.node("Slice", [x, *cut], f"{x}.own")

    def _rows(self, count: int | str) -> str:
        g, width = self._graph, self._width + self._more
        past = g.input(f"past_inputs_{self._layer}", np.float32, (1, count, width))
        if self._more:
            g.node("Gather", [self.own, RETURNED], self._shown, axis=1)
        g.output(self._shown, np.float32, (1, "k" if self._more else "n", width))
        return g.node("Concat", [past, self.own], f"layers.{self._layer}.inputs", axis=1)

    def _convolved(self, inputs: str, rows: str) -> str:
        """Emit the sum of the taps, in the order of the tokens."""
        g, name = self._graph, self._parts.spec.name("conv", self._layer)
        weight, total = read(self._parts.tensors, name), ""
        for tap in range(self._taps):
            at = f"layers.{self._layer}.taps.{tap}"
            ends = tap - self._taps + 1 or _END
            seen = g.node("Slice", [inputs, *map(self._axis, (tap, ends, 1))], f"{at}.seen")
            if rows:
                seen = g.node("Gather", [seen, rows], f"{at}.kept", axis=1)
            factor = g.constant(f"{name}.{tap}", np.ascontiguousarray(weight[:, 0, tap]))
            product = g.node("Mul", [seen, factor], f"{at}.product")
            total = g.node("Add", [total, product], f"{at}.sum") if total else product
        return total

    def _axis(self, number: int) -> str:
        return self._graph.constant(f"axis.{number}", np.array([number], np.int64))


class ShortConvs(MixerWriter):
    """Writes the short convolution of each layer that has one into a graph."""

    def layer(self, layer: int, kind: ShortConv, x: str, out: str, rows: str = "") -> str:
        """Emit it over ``x``, with its projections; with ``rows``, only those that are listed."""
        g, at = self._graph, f"layers.{layer}"
        projected = self._parts.linear(f"{at}.mix_in", x, layer, ("mix_in",), False)
        names = [f"{at}.before", f"{at}.after", f"{at}.x"]
        before, after, x = g.nodes("Split", [projected], names, axis=-1, num_outputs=3)
        conv = Convolution(self._parts, layer, kind.taps, self._spec.hidden)
        g.node("Mul", [before, x], conv.own)
        mixed = conv.emit(rows)
        (after,) = self._where_wanted(rows, after)
        gated = g.node("Mul", [after, mixed], f"{at}.mixed")
        return self._parts.linear(out, gated, layer, ("mix_out",), False)
