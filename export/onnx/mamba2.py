"""A Mamba 2 mixer in attention's place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.export.onnx.parts import GraphParts
from edgedec.export.onnx.recurrence import Recurrence
from edgedec.export.onnx.short_conv import Convolution
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.mixers import Mamba2


def mamba_feeds(layer: int, kind: Mamba2) -> dict[str, npt.NDArray[Any]]:
    """Return a layer's inputs other than the residual stream, at the start of a text."""
    shapes = {
        "inputs": (1, kind.kept, kind.convolved + kind.heads),
        "state": (1, *kind.state),
    }
    return {f"past_{name}_{layer}": np.zeros(at, np.float32) for name, at in shapes.items()}


class Mambas:
    """Writes the mixer of each layer that has one into a graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec

    def layer(self, layer: int, kind: Mamba2, x: str, out: str, rows: str = "") -> str:
        """Emit it over ``x``, with its projections; with ``rows``, only those that are listed."""
        g, at = self._graph, f"layers.{layer}.mixer"
        projected = self._parts.linear(f"{at}.in", x, layer, ("mix_in",), False)
        sizes = kind.inner, kind.convolved
        gate, inputs = self._split(projected, sizes, f"{at}.gate", f"{at}.convolved")
        conv = Convolution(self._parts, layer, kind.taps, kind.convolved, kind.heads)
        g.node("Concat", [inputs, self._step(layer, x)], conv.own, axis=-1)
        convolved, step, pending = conv.pending()
        biased = g.node("Add", [convolved, self._constant("conv_bias", layer)], f"{at}.biased")
        active = g.node(MICROSOFT + "QuickGelu", [biased], f"{at}.active", alpha=1.0)
        states = kind.groups * kind.channels
        sizes = kind.inner, states, states
        fed, key, query = self._split(active, sizes, f"{at}.fed", f"{at}.key", f"{at}.query")
        value = self._by_head(kind, fed, step, f"{at}.value")
        decay = g.node("Mul", [step, self._constant("decay", layer)], f"{at}.decay")
        recurrence = Recurrence(g, layer, "gated", kind.groups, kind.state)
        mixed = recurrence.emit(query, (key, value, decay), pending, f"{at}.recurred")
        skipped = self._by_head(kind, fed, self._constant("skip", layer), f"{at}.skipped")
        mixed = g.node("Add", [mixed, conv.own_rows(skipped)], f"{at}.mixed")
        if rows:
            mixed, gate = (
                g.node("Gather", [part, rows], f"{part}.kept", axis=1) for part in (mixed, gate)
            )
        open_ = g.node(MICROSOFT + "QuickGelu", [gate], f"{at}.open", alpha=1.0)
        gated = g.node("Mul", [mixed, open_], f"{at}.gated")
        weight = read(self._parts.tensors, self._spec.name("mix_norm", layer))
        normed = self._parts.bare_norm(f"{at}.norm", gated, weight)
        return self._parts.linear(out, normed, layer, ("mix_out",), False)

    def _step(self, layer: int, x: str) -> str:
        """Emit ``softplus(step x + bias)``, in fp32 in every format: it is small."""
        g, at = self._graph, f"layers.{layer}.mixer"
        matrix = self._constant("mix_step", layer)
        product = g.node(MICROSOFT + "FusedMatMul", [x, matrix], f"{at}.stepped", transB=1)
        biased = g.node("Add", [product, self._constant("step_bias", layer)], f"{at}.steps")
        return g.node("Softplus", [biased], f"{at}.step")

    def _by_head(self, kind: Mamba2, x: str, factor: str, out: str) -> str:
        """Emit ``x`` times a factor for each head."""
        g, dims = self._graph, self._parts.dims
        heads = g.node("Reshape", [x, dims(1, -1, kind.heads, kind.head_dim)], f"{out}.heads")
        column = g.node("Reshape", [factor, dims(1, -1, kind.heads, 1)], f"{out}.factor")
        product = g.node("Mul", [heads, column], f"{out}.product")
        return g.node("Reshape", [product, dims(1, -1, kind.inner)], out)

    def _split(self, x: str, sizes: tuple[int, ...], *names: str) -> list[str]:
        g = self._graph
        lengths = g.constant(f"sizes.{'+'.join(map(str, sizes))}", np.array(sizes, np.int64))
        return list(g.nodes("Split", [x, lengths], list(names), axis=-1))

    def _constant(self, role: str, layer: int) -> str:
        name = self._spec.name(role, layer)
        return self._graph.constant(name, read(self._parts.tensors, name))
