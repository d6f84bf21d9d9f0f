"""Attention of a layer over a cache of fixed size, of standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.export.onnx_static.parts import StaticParts
from edgedec.export.static_shapes import mask_name, ropes, windows
from edgedec.export.tensors import read


class Attention:
    """Writes the attention of each layer into one graph."""

    def __init__(self, parts: StaticParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec
        self._group = self._spec.heads // self._spec.kv_heads
        rows, slots = parts.rows, parts.slots
        for window in windows(self._spec):
            self._graph.input(mask_name(window), np.float32, (1, rows, slots + rows))
        for index in range(len(ropes(self._spec))):
            for part in ("cos", "sin"):
                pairs = self._spec.rotary_dim // 2
                self._graph.input(f"{part}_{index}", np.float32, (rows, pairs))

    def layer(self, layer: int, x: str, out: str) -> str:
        """Emit attention over ``x`` ``[n, hidden]``, with its output projection."""
        spec, g, at = self._spec, self._graph, f"layers.{layer}"
        packed = self._parts.linear(f"{at}.qkv", x, layer, ("q", "k", "v"), spec.qkv_bias)
        sizes = (spec.q_size, spec.kv_size, spec.kv_size)
        query, key, value = self._split(packed, [f"{at}.{part}" for part in "qkv"], sizes, -1)
        query = self._placed(layer, self._heads(layer, query, "q_norm", spec.heads), "q_norm")
        key = self._placed(layer, self._heads(layer, key, "k_norm", spec.kv_heads), "k_norm")
        value = self._heads(layer, value, "", spec.kv_heads)
        caches = (1, spec.kv_heads, self._parts.slots, spec.head_dim)
        past = [
            g.input(f"past_{part}_{layer}", np.float32, caches[1:]) for part in ("key", "value")
        ]
        for part, new in (("key", key), ("value", value)):
            g.node("Identity", [new], f"{part}_{layer}")
            shape = (spec.kv_heads, self._parts.rows, spec.head_dim)
            g.output(f"{part}_{layer}", np.float32, shape)
        mixed = self._mixed(layer, query, (past[0], key), (past[1], value))
        return self._parts.linear(out, mixed, layer, ("o",), spec.out_bias)

    def _split(self, x: str, outs: list[str], sizes: Sequence[int], axis: int) -> Sequence[str]:
        name = f"sizes.{'+'.join(map(str, sizes))}"
        stored = self._graph.constant(name, np.array(sizes, np.int64))
        return self._graph.nodes("Split", [x, stored], outs, axis=axis)

    def _heads(self, layer: int, x: str, role: str, heads: int) -> str:
        """Emit query, key or value as ``[heads, n, head_dim]``, after its norm."""
        spec, g, parts = self._spec, self._graph, self._parts
        normed = bool(role and spec.qk_norm)
        weight = read(parts.tensors, spec.name(role, layer)) if normed else np.ones(0, np.float32)
        if normed and spec.qk_norm == "all":
            x = parts.bare_norm(f"{x}.normed", x, weight)
        split = g.node("Reshape", [x, parts.dims(-1, heads, spec.head_dim)], f"{x}.split")
        if normed and spec.qk_norm in ("head", "heads"):
            shape = (heads, spec.head_dim) if spec.qk_norm == "heads" else (spec.head_dim,)
            split = parts.bare_norm(f"{x}.normed", split, weight.reshape(shape))
        return g.node("Transpose", [split], f"{x}.heads", perm=[1, 0, 2])

    def _placed(self, layer: int, x: str, role: str) -> str:
        """Emit query or key ``[heads, n, head_dim]`` after its rotation, and a norm after that."""
        x, parts = self._rotated(layer, x), self._parts
        if self._spec.qk_norm != "rotated":
            return x
        weight = read(parts.tensors, self._spec.name(role, layer))
        return parts.bare_norm(f"{x}.normed", x, weight)

    def _rotated(self, layer: int, x: str) -> str:
        spec, g = self._spec, self._graph
        rope = spec.ropes[layer]
        if rope is None:
            return x
        index = ropes(spec).index(rope)
        cos, sin = f"cos_{index}", f"sin_{index}"
        pairs, rest = spec.rotary_dim // 2, spec.head_dim - spec.rotary_dim
        names = [f"{x}.first", f"{x}.second", *([f"{x}.rest"] if rest else [])]
        sizes = [pairs, pairs, *([rest] if rest else [])]
        first, second, *others = self._split(x, names, sizes, -1)
        turned = []
        for out, op, one, other in (("low", "Sub", first, second), ("high", "Add", second, first)):
            a = g.node("Mul", [one, cos], f"{x}.{out}.cos")
            b = g.node("Mul", [other, sin], f"{x}.{out}.sin")
            turned.append(g.node(op, [a, b], f"{x}.{out}"))
        return g.node("Concat", [*turned, *others], f"{x}.placed", axis=-1)

    def _mixed(self, layer: int, query: str, keys: tuple[str, str], values: tuple[str, str]) -> str:
        """Emit the attention-weighted values, ``[n, q_size]``.

        ``keys`` and ``values`` are those of the cache and those of this pass; the cache is not
        copied to join them.
        """
        spec, g, parts = self._spec, self._graph, self._parts
        at, rows, group = f"layers.{layer}.attention", parts.rows, self._group
        query = parts.scaled(f"{at}.query", query, spec.attention_scale)
        shape = parts.dims(spec.kv_heads, group * rows, spec.head_dim)
        query = g.node("Reshape", [query, shape], f"{at}.grouped")
        scores = []
        for name, key in zip(("past", "own"), keys, strict=True):
            turned = g.node("Transpose", [key], f"{at}.{name}.keys", perm=[0, 2, 1])
            scores.append(g.node("MatMul", [query, turned], f"{at}.{name}.scores"))
        joined = g.node("Concat", scores, f"{at}.scores", axis=-1)
        if spec.scales.attention_cap:
            joined = parts.capped(f"{at}.capped", joined, spec.scales.attention_cap)
        columns = parts.slots + rows
        apart = parts.dims(spec.kv_heads, group, rows, columns)
        joined = g.node("Reshape", [joined, apart], f"{at}.apart")
        mask = mask_name(spec.windows[layer])
        shown = g.node("Add", [joined, mask], f"{at}.shown")
        shares = g.node("Softmax", [shown], f"{at}.shares", axis=-1)
        together = parts.dims(spec.kv_heads, group * rows, columns)
        shares = g.node("Reshape", [shares, together], f"{at}.together")
        names = [f"{at}.{name}.shares" for name in ("past", "own")]
        mixed = [
            g.node("MatMul", [share, value], f"{share}.mixed")
            for share, value in zip(
                self._split(shares, names, (parts.slots, rows), -1), values, strict=True
            )
        ]
        total = g.node("Add", mixed, f"{at}.mixed")
        heads = parts.dims(spec.heads, rows, spec.head_dim)
        total = g.node("Reshape", [total, heads], f"{at}.heads")
        total = g.node("Transpose", [total], f"{at}.turned", perm=[1, 0, 2])
        return g.node("Reshape", [total, parts.dims(rows, spec.q_size)], f"{at}.flat")
