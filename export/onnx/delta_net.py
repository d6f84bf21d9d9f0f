"""The gated delta rule in attention's place."""

from __future__ import annotations

import numpy as np

from edgedec.export.onnx.recurrence import MixerWriter, Recurrence
from edgedec.export.onnx.short_conv import Convolution
from edgedec.export.tensors import FloatArray, read
from edgedec.models.mixers import DeltaNet

# Epsilon in the length of a query or key.
_LEAST = 1e-6


class DeltaNets(MixerWriter):
    """Writes the gated delta rule of each layer that has one into a graph."""

    def layer(self, layer: int, kind: DeltaNet, x: str, out: str, rows: str = "") -> str:
        """Emit it over ``x``, with its projections; with ``rows``, only those that are listed."""
        g, at, heads = self._graph, f"layers.{layer}.mixer", kind.value_heads
        projected = self._parts.linear(f"{at}.in", x, layer, ("mix_in", "mix_gate"), False)
        sizes: tuple[int, ...] = kind.convolved, kind.values
        inputs, gate = self._split(projected, sizes, f"{at}.convolved", f"{at}.gate")
        conv = Convolution(self._parts, layer, kind.taps, kind.convolved, 2 * heads)
        step = self._step(layer, x, f"{at}.step")
        decay = g.node("Mul", [step, self._constant("decay", layer)], f"{at}.decays")
        beta = g.node("Sigmoid", [self._small("mix_beta", layer, x, f"{at}.share")], f"{at}.shares")
        g.node("Concat", [inputs, decay, beta], conv.own, axis=-1)
        convolved, others, pending = conv.pending()
        decay, beta = self._split(others, (heads, heads), f"{at}.decay", f"{at}.beta")
        active = self._silu(convolved, f"{at}.active")
        sizes = kind.keys, kind.keys, kind.values
        query, key, value = self._split(active, sizes, f"{at}.q", f"{at}.k", f"{at}.v")
        query = self._unit(kind, query, f"{at}.query", kind.key_dim**-0.5)
        key = self._unit(kind, key, f"{at}.key")
        recurrence = Recurrence(g, layer, "gated_delta", kind.key_heads, kind.state)
        mixed = recurrence.emit(query, (key, value, decay, beta), pending, f"{at}.recurred")
        mixed, gate = self._where_wanted(rows, mixed, gate)
        weight = read(self._parts.tensors, self._spec.name("mix_norm", layer))
        normed = self._parts.head_norm(at, mixed, kind.value_heads, weight)
        gated = g.node("Mul", [normed, self._silu(gate, f"{at}.open")], f"{at}.gated")
        return self._parts.linear(out, gated, layer, ("mix_out",), False)

    def _unit(self, kind: DeltaNet, x: str, out: str, length: float = 1.0) -> str:
        """Scale each head of query or key to a length, by an RMS norm with its own epsilon."""
        g, dims, size = self._graph, self._parts.dims, kind.key_dim
        weight: FloatArray = np.full(size, length * size**-0.5, np.float32)
        heads = g.node("Reshape", [x, dims(1, -1, kind.key_heads, size)], f"{out}.heads")
        scale, least = g.constant(f"{out}.weight", weight), _LEAST / size
        op = "SimplifiedLayerNormalization"
        normed = g.node(op, [heads, scale], f"{out}.normed", axis=-1, epsilon=least)
        return g.node("Reshape", [normed, dims(1, -1, kind.keys)], out)
