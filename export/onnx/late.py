"""Rows of layers that only read: with no logits wanted, as in a prompt, none but the last.

Trailing layers without keys and values of their own leave nothing behind for later tokens. The
attention kernel takes no pass without rows, so that one is computed.
"""

from __future__ import annotations

import numpy as np

from edgedec.export.onnx.parts import GraphParts
from edgedec.models.decoder import DecoderSpec

# Past the end of any slice.
_END = np.iinfo(np.int64).max


def late_from(spec: DecoderSpec) -> int:
    """Return the first layer from which on all only read; the number of layers if none does.

    A pass whose streams are shown has all rows, since it wants logits.
    """
    first = spec.layers
    while first > 0 and spec.lender(first - 1) != first - 1:
        first -= 1
    return first


class LateRows:
    """Emits those rows of a graph's values; call ``of`` for layers from ``first`` on."""

    def __init__(self, parts: GraphParts) -> None:
        self._graph = parts.graph
        self.first = late_from(parts.spec)

    def of(self, x: str, axis: int, layer: int | None = None) -> str:
        """Emit the late rows of ``x``, once; a ``layer`` before the first one has all of them."""
        if layer is not None and layer < self.first:
            return x
        g, out = self._graph, f"{x}.late"
        if out in g:
            return out
        ends = [g.constant(f"axis.{n}", np.array([n], np.int64)) for n in (_END, axis)]
        return g.node("Slice", [x, self._either("late.start", -1, 0), *ends], out)

    def places(self, which: str, layer: int) -> str:
        """Emit an input that lists rows, as places among the late ones."""
        if layer < self.first:
            return which
        out = f"{which}.late.places"
        if out in self._graph:
            return out
        return self._graph.node("Mul", [self.of(which, 0), self._either("late.all", 0, 1)], out)

    def _either(self, out: str, none: int, some: int) -> str:
        """Emit one of two numbers: whether no logits are wanted."""
        g = self._graph
        if out in g:
            return out
        zero, *both = (g.constant(f"axis.{n}", np.array([n], np.int64)) for n in (0, none, some))
        if "late.none" not in g:
            g.node("Equal", [g.node("Shape", ["rows"], "late.wanted"), zero], "late.none")
        return g.node("Where", ["late.none", *both], out)
