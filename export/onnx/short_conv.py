"""A short convolution in attention's place, with what it keeps of a text.

Products and sums of whole rows, so that a row's bits do not depend on how many are computed with
it, whatever the kernels are. The graph reads the inputs of the tokens before a pass and returns
those of the pass's own rows: a runtime keeps as many of them as it can go back, and a rejected row
is one that it does not keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import ShortConv

# Past the end of any slice.
_END = np.iinfo(np.int64).max


def conv_feeds(spec: DecoderSpec, layer: int, kind: ShortConv) -> dict[str, npt.NDArray[Any]]:
    """Return a layer's inputs other than the residual stream, at the start of a text."""
    return {f"past_inputs_{layer}": np.zeros((1, kind.kept, spec.hidden), np.float32)}


class ShortConvs:
    """Writes the short convolution of each layer that has one into a graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec

    def layer(self, layer: int, kind: ShortConv, x: str, out: str, rows: str = "") -> str:
        """Emit it over ``x``, with its projections; with ``rows``, only those that an input lists.

        All rows' inputs are returned, since later tokens read them.
        """
        g, spec, at = self._graph, self._spec, f"layers.{layer}"
        projected = self._parts.linear(f"{at}.mix_in", x, layer, ("mix_in",), False)
        names = [f"{at}.before", f"{at}.after", f"{at}.x"]
        before, after, x = g.nodes("Split", [projected], names, axis=-1, num_outputs=3)
        past = g.input(f"past_inputs_{layer}", np.float32, (1, kind.kept, spec.hidden))
        own = g.node("Mul", [before, x], f"present_inputs_{layer}")
        g.output(own, np.float32, (1, "n", spec.hidden))
        both = g.node("Concat", [past, own], f"{at}.inputs", axis=1)
        mixed = self._convolved(layer, kind, both, rows)
        if rows:
            after = g.node("Gather", [after, rows], f"{after}.kept", axis=1)
        gated = g.node("Mul", [after, mixed], f"{at}.mixed")
        return self._parts.linear(out, gated, layer, ("mix_out",), False)

    def _convolved(self, layer: int, kind: ShortConv, inputs: str, rows: str) -> str:
        """Emit the sum of the taps, in the order of the tokens."""
        g, name = self._graph, self._spec.name("conv", layer)
        weight, total = read(self._parts.tensors, name), ""
        for tap in range(kind.taps):
            at = f"layers.{layer}.taps.{tap}"
            ends = tap - kind.kept or _END
            seen = g.node("Slice", [inputs, *map(self._axis, (tap, ends, 1))], f"{at}.seen")
            if rows:
                seen = g.node("Gather", [seen, rows], f"{at}.kept", axis=1)
            factor = g.constant(f"{name}.{tap}", np.ascontiguousarray(weight[:, 0, tap]))
            product = g.node("Mul", [seen, factor], f"{at}.product")
            total = g.node("Add", [total, product], f"{at}.sum") if total else product
        return total

    def _axis(self, number: int) -> str:
        return self._graph.constant(f"axis.{number}", np.array([number], np.int64))
