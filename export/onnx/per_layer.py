"""A layer's own input and its factor, which follow its MLP (Gemma 4).

The inputs of all layers are looked up at once, in a table that no product reads: a runtime maps
it, and a token reads one row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from edgedec.export.onnx.late import LateRows
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import FloatArray, read
from edgedec.export.weights import make_format


class PerLayerInputs:
    """Writes what each layer adds into a graph.

    Args:
        parts: the graph.
        kept: as of ``Flow``.

    """

    def __init__(self, parts: GraphParts, kept: Callable[[str, str], str] | None = None) -> None:
        self._parts, self._graph, self._spec, self._kept = parts, parts.graph, parts.spec, kept
        self._late = LateRows(parts)

    def inputs(self, ids: str, embedded: str) -> None:
        """Emit ``per_layer_inputs``, those of all layers, ``[1, n, layers * per_layer_inputs]``."""
        g, spec, parts = self._graph, self._spec, self._parts
        width, half = spec.per_layer_inputs, 0.5**0.5
        # The table is most of the file, so it has the bits of the weights, not those of the head.
        store = make_format(
            dataclasses.replace(parts.options.form, head_bits=None), g, parts.tensors
        )
        rows = store.embed(ids, "per_layer.rows", spec.name("per_layer_table"), shared=True)
        parts.store.errors |= store.errors
        scaled = parts.scaled("per_layer.looked_up", rows, width**0.5 * half)
        names = [spec.name("per_layer_in")]
        projected = parts.store.linear(embedded, "per_layer.product", names, [])
        projected = parts.scaled("per_layer.projected", projected, spec.hidden**-0.5)
        split = g.node(
            "Reshape", [projected, parts.dims(1, -1, spec.layers, width)], "per_layer.split"
        )
        weight = read(parts.tensors, spec.name("per_layer_in_norm")) * np.float32(half)
        normed = parts.bare_norm("per_layer.normed", split, weight)
        flat = g.node("Reshape", [normed, parts.dims(1, -1, spec.layers * width)], "per_layer.flat")
        parts.add("per_layer_inputs", flat, scaled)

    def layer(self, layer: int, x: str, branch: str) -> tuple[str, str]:
        """Emit the end of a layer after ``x + branch``, as ``Flow`` names what it returns."""
        parts, at = self._parts, f"layers.{layer}"
        factor = self._factor(layer)
        if self._spec.per_layer_inputs:
            x = parts.add(f"{at}.fed", x, branch)
            branch = self._added(layer, x)
        number = self._graph.constant(f"{at}.factor", factor)
        stream = parts.multiplied(f"{at}.stream", x, number)
        return stream, parts.multiplied(f"{at}.branch", branch, number)

    def _factor(self, layer: int) -> FloatArray:
        spec = self._spec
        if not spec.factors:
            return np.ones(1, np.float32)
        return read(self._parts.tensors, spec.name("factor", layer))

    def _added(self, layer: int, x: str) -> str:
        """Emit what the layer's own input adds to ``x``."""
        g, parts, at = self._graph, self._parts, f"layers.{layer}.per_layer"
        width = self._spec.per_layer_inputs
        ends = [
            g.constant(f"axis.{n}", np.array([n], np.int64))
            for n in (layer * width, (layer + 1) * width, 2)
        ]
        own = g.node("Slice", [self._late.of("per_layer_inputs", 1, layer), *ends], f"{at}.input")
        own = self._kept(own, f"{at}.kept") if self._kept else own
        gate = parts.linear(f"{at}.gate", x, layer, ("per_layer_gate",), False)
        inner = parts.multiplied(f"{at}.gated", parts.activated(f"{at}.active", gate), own)
        product = parts.linear(f"{at}.product", inner, layer, ("per_layer_out",), False)
        return parts.norm(f"{at}.normed", product, "per_layer_norm", layer)
