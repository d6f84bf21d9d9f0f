"""A Mamba 2 mixer in attention's place."""

from __future__ import annotations

from edgedec.export.onnx.recurrence import MixerWriter, Recurrence
from edgedec.export.onnx.short_conv import Convolution
from edgedec.export.tensors import read
from edgedec.models.mixers import Mamba2


class Mambas(MixerWriter):
    """Writes the mixer of each layer that has one into a graph."""

    def layer(self, layer: int, kind: Mamba2, x: str, out: str, rows: str = "") -> str:
        """Emit it over ``x``, with its projections; with ``rows``, only those that are listed."""
        g, at = self._graph, f"layers.{layer}.mixer"
        projected = self._parts.linear(f"{at}.in", x, layer, ("mix_in",), False)
        halves = kind.inner, kind.convolved
        gate, inputs = self._split(projected, halves, f"{at}.gate", f"{at}.convolved")
        conv = Convolution(self._parts, layer, kind.taps, kind.convolved, kind.heads)
        g.node("Concat", [inputs, self._step(layer, x, f"{at}.step")], conv.own, axis=-1)
        convolved, step, pending = conv.pending()
        biased = g.node("Add", [convolved, self._constant("conv_bias", layer)], f"{at}.biased")
        active = self._silu(biased, f"{at}.active")
        states = kind.groups * kind.channels
        sizes = kind.inner, states, states
        fed, key, query = self._split(active, sizes, f"{at}.fed", f"{at}.key", f"{at}.query")
        value = self._by_head(kind, fed, step, f"{at}.value")
        decay = g.node("Mul", [step, self._constant("decay", layer)], f"{at}.decay")
        recurrence = Recurrence(g, layer, "gated", kind.groups, kind.state)
        mixed = recurrence.emit(query, (key, value, decay), pending, f"{at}.recurred")
        skipped = self._by_head(kind, fed, self._constant("skip", layer), f"{at}.skipped")
        mixed = g.node("Add", [mixed, conv.own_rows(skipped)], f"{at}.mixed")
        mixed, gate = self._where_wanted(rows, mixed, gate)
        open_ = self._silu(gate, f"{at}.open")
        gated = g.node("Mul", [mixed, open_], f"{at}.gated")
        weight = read(self._parts.tensors, self._spec.name("mix_norm", layer))
        normed = self._parts.bare_norm(f"{at}.norm", gated, weight)
        return self._parts.linear(out, normed, layer, ("mix_out",), False)

    def _by_head(self, kind: Mamba2, x: str, factor: str, out: str) -> str:
        """Emit ``x`` times a factor for each head."""
        g, dims = self._graph, self._parts.dims
        heads = g.node("Reshape", [x, dims(1, -1, kind.heads, kind.head_dim)], f"{out}.heads")
        column = g.node("Reshape", [factor, dims(1, -1, kind.heads, 1)], f"{out}.factor")
        product = g.node("Mul", [heads, column], f"{out}.product")
        return g.node("Reshape", [product, dims(1, -1, kind.inner)], out)
