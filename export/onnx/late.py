"""Computes only the last row in trailing layers that have no keys and values of their own.

Later tokens read nothing of these layers, so a pass without logits, as in a prompt, can skip its
rows there. The attention kernel needs at least one row, so the last is computed.
"""

from __future__ import annotations

import numpy as np

from edgedec.export.onnx.parts import GraphParts
from edgedec.models.decoder import DecoderSpec

# Past the end of any slice.
_END = np.iinfo(np.int64).max


def late_from(spec: DecoderSpec) -> int:
    """Return the first of the trailing layers without keys of their own, else the number of layers.

    A pass that shows its streams also wants logits, and so computes all rows.
    """
    first = spec.layers
    while first > 0 and spec.lender(first - 1) != first - 1:
        first -= 1
    return first


class LateRows:
    """Emits the rows that are computed; call ``of`` for layers from ``first`` on."""

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
        """Emit ``none`` if the pass wants no logits, else ``some``."""
        g = self._graph
        if out in g:
            return out
        zero, *both = (g.constant(f"axis.{n}", np.array([n], np.int64)) for n in (0, none, some))
        if "late.none" not in g:
            g.node("Equal", [g.node("Shape", ["rows"], "late.wanted"), zero], "late.none")
        return g.node("Where", ["late.none", *both], out)
