"""Attention of a layer: projections, norms and rotation of query and key, the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.export.onnx import positions
from edgedec.export.onnx.late import LateRows
from edgedec.export.onnx.options import KV_TYPES, context
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.decoder import DecoderSpec

# Nodes of the largest tree, by which a node's slot may exceed its position.
_TREE_SLOTS = 1024


def attention_feeds(
    spec: DecoderSpec, layer: int, count: int, kv: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of a layer's attention besides its rows, for ``count`` tokens."""
    spec = spec.at(layer)
    feeds: dict[str, npt.NDArray[Any]] = {
        "position_ids": np.arange(count)[None],
        "attention_bias": np.zeros((1, 1, count, count), np.float32),
        "seqlens_k": np.array([count - 1], np.int32),
        "total_sequence_length": np.array(count, np.int32),
    }
    cache = np.zeros((1, spec.kv_heads, count, spec.head_dim), KV_TYPES[kv])
    feeds |= dict.fromkeys(("attention_rows", "computed_rows", "rows"), np.arange(count))
    return feeds | {f"past_{part}_{layer}": cache for part in ("key", "value")}


class Attention:
    """Writes the attention of each layer into a graph.

    The attention kernel computes a single row differently from several rows; kernels of products
    often do not. With ``own_rows`` attention reads the rows ``attention_rows``, which may contain a
    single row twice, and returns ``computed_rows`` of them.
    """

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec
        self._short = positions.are_short(parts.spec, context(parts.spec, parts.options))
        self._late = LateRows(parts)

    def inputs(self) -> None:
        """Declare the inputs of every layer, and compute what all layers share."""
        g = self._graph
        g.input("position_ids", np.int64, (1, "n"))
        own = self._parts.options.own_rows
        g.input("attention_bias", np.float32, (1, 1, "m" if own else "n", "total"))
        g.input("seqlens_k", np.int32, (1,))
        g.input("total_sequence_length", np.int32, ())
        self._positions = "position_ids"
        if own:
            g.input("attention_rows", np.int64, ("m",))
            g.input("computed_rows", np.int64, ("n",))
            self._positions = self._rows("position_ids", "attention.positions")
        for window in sorted(set(self._spec.windows) - {0}):
            self._window_bias(window)

    def _window_bias(self, window: int) -> None:
        """Emit the attention bias with -inf before each row's window.

        The kernel's own window counts slots. In a tree a node's slot lies beyond its position, so
        the kernel would hide the oldest tokens of its window. This bias is exact for all chains,
        and for trees no deeper than the window.
        """
        g = self._graph
        zero, one = (g.constant(f"number.{i}", np.array(i, np.int64)) for i in (0, 1))
        size = g.constant(f"window.{window}", np.array([[[[window]]]], np.int64))
        axes = g.constant("window.axes", np.array([1, 3], np.int64))
        hidden = g.constant("window.hidden", np.array(-np.inf, np.float32))
        if "window.slots" not in g:
            total = g.node("Cast", ["total_sequence_length"], "window.total", to=7)
            g.node("Range", [zero, total, one], "window.slots")
            g.node("Unsqueeze", [self._positions, axes], "window.positions")
        before = g.node("Sub", ["window.positions", size], f"window.{window}.before")
        far = g.node("LessOrEqual", ["window.slots", before], f"window.{window}.far")
        g.node("Where", [far, hidden, "attention_bias"], f"window.{window}.bias")

    def _rows(self, x: str, out: str, which: str = "attention_rows") -> str:
        """Emit the rows of ``x`` that an input lists, unless another layer has."""
        if out in self._graph:
            return out
        return self._graph.node("Gather", [x, which], out, axis=1)

    def layer(self, layer: int, x: str, out: str) -> str:
        """Emit attention over ``x``, with its output projection."""
        query, key, value, gate = self._qkv(layer, x)
        mixed = self._attention(layer, query, key, value)
        return self._projected(layer, mixed, gate, out)

    def wanted(self, layer: int, x: str, out: str) -> str:
        """Emit as ``layer`` does, but only the rows whose logits are wanted."""
        query, key, value, gate = self._qkv(layer, x)
        mixed = self._attention(layer, query, key, value)
        mixed, gate = (x and self._rows(x, f"{x}.kept", "rows") for x in (mixed, gate))
        return self._projected(layer, mixed, gate, out)

    def _projected(self, layer: int, mixed: str, gate: str, out: str) -> str:
        if gate:
            opened = self._graph.node("Sigmoid", [gate], f"{gate}.open")
            mixed = self._graph.node("Mul", [mixed, opened], f"{mixed}.gated")
        return self._parts.linear(out, mixed, layer, ("o",), self._spec.out_bias)

    def _rotates_itself(self, layer: int) -> bool:
        """Return whether the attention kernel does the rotation, as it can for most heads."""
        spec = self._spec.at(layer)
        whole = spec.rotary_dim == spec.head_dim
        fits = whole and spec.head_dim % 16 == 0 and not self._short
        fits = fits and self._spec.qk_norm != "rotated"
        return self._spec.ropes[layer] is not None and fits

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str, str]:
        """Emit query, key, value and gate; packed in the first if the kernel supports that."""
        g, spec, at = self._graph, self._spec.at(layer), f"layers.{layer}"
        roles = self._spec.mixer_matrices(layer)[:-1]
        packed = self._parts.linear(f"{at}.qkv", x, layer, roles, spec.qkv_bias)
        kernels = self._rotates_itself(layer) or spec.ropes[layer] is None
        if kernels and not (spec.qk_norm or spec.gated_attention or self._spec.sizes):
            return packed, "", "", ""
        rows = {roles[0]: packed}
        if len(roles) > 1:
            widths = {"k": spec.kv_size, "v": spec.kv_size}
            sizes = [widths.get(role, spec.q_size) for role in roles]
            split = g.constant(f"sizes.{sizes}", np.array(sizes, np.int64))
            parts = g.nodes("Split", [packed, split], [f"{at}.{role}" for role in roles], axis=-1)
            rows = dict(zip(roles, parts, strict=True))
        query = self._turned(layer, self._normed(layer, rows["q"], "q_norm"), "q_norm")
        return query, *self._keys(layer, rows), rows.get("attention_gate", "")

    def _keys(self, layer: int, rows: dict[str, str]) -> tuple[str, str]:
        """Emit key and value; of a layer without its own, those of the layer that lends them."""
        spec, parts, lender = self._spec.at(layer), self._parts, self._spec.lender(layer)
        lent = [f"layers.{lender}.{part}" for part in ("key", "value")]
        if lender != layer:
            key, value = (self._late.of(rows, 1, layer) for rows in lent)
            return self._turned(layer, key, "k_norm"), value
        key, value = self._normed(layer, rows["k"], "k_norm"), rows.get("v", rows["k"])
        if spec.norm.values:
            plain = np.ones(spec.head_dim, np.float32)
            value = parts.head_norm(lent[1], value, spec.kv_heads, plain)
        if layer in self._spec.lenders:
            key, value = (parts.same(*names) for names in zip(lent, (key, value), strict=True))
        return self._turned(layer, key, "k_norm"), value

    def _turned(self, layer: int, x: str, role: str) -> str:
        """Emit query or key after its rotation, and after the norm that may follow that."""
        spec = self._spec.at(layer)
        x = self._placed(layer, x, spec.heads if role == "q_norm" else spec.kv_heads)
        return self._normed(layer, x, role, turned=True)

    def _normed(self, layer: int, x: str, role: str, *, turned: bool = False) -> str:
        """Emit query or key after its norm, if that is where it has one."""
        g, spec, parts = self._graph, self._spec.at(layer), self._parts
        if not spec.qk_norm or turned != (spec.qk_norm == "rotated"):
            return x
        weight = read(parts.tensors, spec.name(role, layer))
        if spec.qk_norm == "all":
            return parts.bare_norm(f"{x}.normed", x, weight)
        heads = spec.heads if role == "q_norm" else spec.kv_heads
        if spec.qk_norm in ("head", "rotated"):
            return parts.head_norm(x, x, heads, weight)
        split = g.node("Reshape", [x, parts.dims(1, -1, heads, spec.head_dim)], f"{x}.heads")
        even = parts.bare_norm(f"{x}.even", split, np.ones(spec.head_dim, np.float32))
        each = g.constant(f"{x}.each", weight.reshape(heads, -1))
        normed = g.node("Mul", [even, each], f"{x}.norm")
        return g.node("Reshape", [normed, parts.dims(1, -1, heads * spec.head_dim)], f"{x}.normed")

    def _placed(self, layer: int, x: str, heads: int) -> str:
        """Emit query or key after its rotation, unless the kernel does it."""
        spec = self._spec.at(layer)
        if spec.ropes[layer] is None or self._rotates_itself(layer):
            return x
        if f"{x}.placed" in self._graph:  # by the layer whose keys these are
            return f"{x}.placed"
        return self._graph.node(
            MICROSOFT + "RotaryEmbedding",
            [x, self._late.of(self._order(), 1, layer), *self._tables(layer)],
            f"{x}.placed",
            interleaved=0,
            num_heads=heads,
            rotary_embedding_dim=spec.rotary_dim,
        )

    def _order(self) -> str:
        """Emit each row's place in the tables."""
        return positions.emit_order(self._graph) if self._short else "position_ids"

    def _tables(self, layer: int) -> list[str]:
        """Store cosines and sines once for all layers that share them."""
        spec, rope, dim = self._spec, self._spec.ropes[layer], self._spec.at(layer).rotary_dim
        alike = (spec.ropes[one] == rope and spec.at(one).rotary_dim == dim for one in range(layer))
        first, count = [*alike, True].index(True), context(spec, self._parts.options)
        if self._short and rope is not None:
            short = positions.short_tables(rope, dim, count, spec.max_context)
            return positions.emit_rows(self._graph, short, str(first))
        tables = spec.rope_tables(layer, count) or ()
        names = (f"cos.{first}", f"sin.{first}")
        return [self._graph.constant(n, table) for n, table in zip(names, tables, strict=True)]

    def _attention(self, layer: int, query: str, key: str, value: str) -> str:
        g, spec, options = self._graph, self._spec.at(layer), self._parts.options
        cache = (1, spec.kv_heads, "capacity", spec.head_dim)
        dtype = KV_TYPES[options.kv]
        past = [g.input(f"past_{part}_{layer}", dtype, cache) for part in ("key", "value")]
        present = [f"present_{part}_{layer}" for part in ("key", "value")]
        out = f"layers.{layer}.attention"
        own = options.own_rows
        if own:
            which = self._late.places("attention_rows", layer)
            query, key, value = (
                x and self._rows(x, f"{x}.rows", which) for x in (query, key, value)
            )
        scales, quantized = self._kv_scales(layer)
        window = spec.windows[layer]
        bias = f"window.{window}.bias" if window else "attention_bias"
        bias = self._late.of(bias, 2, layer)
        sizes = ["seqlens_k", "total_sequence_length"]
        rotates = self._rotates_itself(layer)
        tables = ["", "", ""]
        if rotates:
            tables = [*self._tables(layer), self._late.of(self._positions, 1, layer)]
        g.nodes(
            MICROSOFT + "GroupQueryAttention",
            [query, key, value, *past, *sizes, *tables, bias, *scales],
            [f"{out}.rows" if own else out, *present],
            num_heads=spec.heads,
            kv_num_heads=spec.kv_heads,
            do_rotary=int(rotates),
            rotary_interleaved=0,
            scale=spec.attention_scale,
            softcap=spec.scales.attention_cap,
            # Counted in slots, so it must allow for a tree; the bias is exact.
            local_window_size=window + _TREE_SLOTS if window else -1,
            **quantized,
        )
        for name in present:
            g.output(name, dtype, cache)
        computed = self._late.places("computed_rows", layer) if own else ""
        return self._rows(f"{out}.rows", out, computed) if own else out

    def _kv_scales(self, layer: int) -> tuple[list[str], dict[str, str | int]]:
        """Return the inputs and attributes of attention over an int8 cache."""
        options = self._parts.options
        if options.kv == "fp32":
            return [], {}
        spec, lender = self._spec, self._spec.lender(layer)
        names = [f"layers.{lender}.{part}_scale" for part in ("key", "value")]
        for name, scale in zip(names, options.kv_scales[spec.caching.index(lender)], strict=True):
            self._graph.constant(name, scale.reshape(spec.at(layer).kv_heads, 1, -1))
        kinds = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        return ["", *names], {**kinds, "kv_cache_bit_width": 8}
