"""Attention of a layer in MIL: projections, norms and rotation of query and key, the cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgedec.coreml.builder import Value, integers
from edgedec.coreml.types import Kind, TensorType
from edgedec.export.coreml.options import slots
from edgedec.export.coreml.parts import HALF, ProgramParts
from edgedec.export.static_shapes import mask_name, ropes, windows
from edgedec.export.tensors import FloatArray, read

STATE = "kv"


@dataclass(slots=True)
class _Shared:
    """Values that all layers of one function share.

    Attributes:
        tables: cosines and sines by rotary embedding, ``[n, pairs]`` each.
        masks: attention bias by window, ``[1, 1, group * n, slots]``.
        current: the cache after the last layer.

    """

    tables: list[tuple[Value, Value]]
    masks: dict[int, Value]
    current: Value


class Attention:
    """Writes the attention of each layer into one function.

    Args:
        rows: tokens that it computes.
        positions: positions of the tokens; None if the function does not take them.

    """

    def __init__(self, parts: ProgramParts, rows: int, positions: Value | None) -> None:
        self._parts, self._spec, self._rows = parts, parts.spec, rows
        b, spec = parts.builder, parts.spec
        self._slots, self._group = slots(spec), spec.heads // spec.kv_heads
        self._writes = Blending(parts, rows) if parts.blends else Slicing(parts, rows)
        masks = {window: self._mask(window) for window in windows(spec)}
        self._state = cache_state(parts)
        tables = [self._tables(index, positions) for index in range(len(ropes(spec)))]
        self._shared = _Shared(tables, masks, b.read(self._state))

    def _mask(self, window: int) -> Value:
        """Declare the attention bias of a window (0 is all tokens); -4e4 hides a slot."""
        b, rows = self._parts.builder, self._rows
        mask = b.input(mask_name(window), HALF, 1, rows, self._slots)
        wide = b.reshape(mask, 1, 1, rows, self._slots)
        type = TensorType(HALF, (1, 1, self._group * rows, self._slots))
        return b.operation("tile", type, x=wide, reps=integers(1, 1, self._group, 1))[0]

    def _tables(self, index: int, positions: Value | None) -> tuple[Value, Value]:
        """Look up cosines and sines; for the Neural Engine they are inputs."""
        parts, spec = self._parts, self._spec
        names = [f"{part}_{index}" for part in ("cos", "sin")]
        if positions is None or parts.blends:
            given = [parts.builder.input(n, HALF, self._rows, spec.rotary_dim // 2) for n in names]
            return given[0], given[1]
        rope = ropes(spec)[index]
        tables = rope.tables(spec.rotary_dim, spec.max_context, spec.max_context)
        found = []
        for name, table in zip(names, tables, strict=True):
            stored = parts.weight(parts.store.array(name, table))
            found.append(parts.builder.cast(parts.builder.gather(stored, positions), HALF))
        return found[0], found[1]

    def layer(self, layer: int, x: Value, out: str) -> Value:
        """Emit attention over ``x`` ``[n, hidden]``, with its output projection."""
        spec, b, rows = self._spec, self._parts.builder, self._rows
        packed = self._parts.linear(f"{out}.qkv", x, layer, ("q", "k", "v"), spec.qkv_bias)
        query, key, value = b.split(packed, spec.q_size, spec.kv_size, spec.kv_size)
        query = self._placed(layer, self._heads(layer, query, "q_norm", spec.heads), "q_norm")
        key = self._placed(layer, self._heads(layer, key, "k_norm", spec.kv_heads), "k_norm")
        value = self._heads(layer, value, "", spec.kv_heads)
        keys, values = (
            self._kept(2 * layer + index, part) for index, part in enumerate((key, value))
        )
        shape = (1, spec.kv_heads, self._group * rows, spec.head_dim)
        mixed = self._mixed(layer, b.reshape(query, *shape), keys, values)
        heads = b.transpose(b.reshape(mixed, spec.heads, rows, spec.head_dim), 1, 0, 2)
        flat = b.reshape(heads, rows, spec.q_size)
        return self._parts.linear(out, flat, layer, ("o",), spec.out_bias)

    def _heads(self, layer: int, x: Value, role: str, heads: int) -> Value:
        """Emit query, key or value as ``[heads, n, head_dim]``, after its norm."""
        spec, parts, b = self._spec, self._parts, self._parts.builder
        if role and spec.qk_norm == "all":
            x = parts.normed(x, self._norm_weight(role, layer))
        split = b.reshape(x, self._rows, heads, spec.head_dim)
        if role and spec.qk_norm in ("head", "heads"):
            name, weight = self._norm_weight(role, layer)
            shape = (heads, spec.head_dim) if spec.qk_norm == "heads" else (spec.head_dim,)
            split = parts.normed(split, (name, weight.reshape(shape)))
        return b.transpose(split, 1, 0, 2)

    def _norm_weight(self, role: str, layer: int) -> tuple[str, FloatArray]:
        name = self._spec.name(role, layer)
        return name, read(self._parts.tensors, name)

    def _placed(self, layer: int, x: Value, role: str) -> Value:
        """Emit query or key ``[heads, n, head_dim]`` after its rotation, and a norm after that."""
        x = self._rotated(layer, x)
        after = self._spec.qk_norm == "rotated"
        return self._parts.normed(x, self._norm_weight(role, layer)) if after else x

    def _rotated(self, layer: int, x: Value) -> Value:
        spec, b = self._spec, self._parts.builder
        rope = spec.ropes[layer]
        if rope is None:
            return x
        cos, sin = self._shared.tables[ropes(spec).index(rope)]
        pairs, rest = spec.rotary_dim // 2, spec.head_dim - spec.rotary_dim
        first, second, *others = b.split(x, *([pairs, pairs] + [rest] * bool(rest)))
        turned = [
            b.binary("sub", b.binary("mul", first, cos), b.binary("mul", second, sin)),
            b.binary("add", b.binary("mul", second, cos), b.binary("mul", first, sin)),
        ]
        return b.concat([*turned, *others], 2)

    def _kept(self, entry: int, x: Value) -> Value:
        """Emit keys or values ``[kv_heads, n, head_dim]`` into the cache; return all of them."""
        b, state, spec = self._parts.builder, self._state, self._spec
        new, all_rows = self._writes.put(self._shared.current, entry, x)
        b.write(state, new)
        # Read again after writing: using the value that was read before would lose the update.
        self._shared.current = b.read(state)
        if all_rows is not None:
            return all_rows
        end = (entry + 1, spec.kv_heads, self._slots, spec.head_dim)
        return b.part(self._shared.current, (entry, 0, 0, 0), end)

    def _mixed(self, layer: int, query: Value, keys: Value, values: Value) -> Value:
        """Emit the attention-weighted values, ``[1, kv_heads, group * n, head_dim]``."""
        spec, b, parts = self._spec, self._parts.builder, self._parts
        cap, mask = spec.scales.attention_cap, self._shared.masks[spec.windows[layer]]
        if not cap and not parts.blends:
            # The operation itself divides by the square root of the head size.
            factor = spec.attention_scale * np.sqrt(spec.head_dim)
            if not np.isclose(factor, 1):
                query = b.binary("mul", query, factor)
            return b.operation(
                "scaled_dot_product_attention", query.type,
                query=query, key=keys, value=values, attn_mask=mask,
            )[0]  # fmt: skip
        # The query is scaled instead of the products, which could overflow fp16.
        scores = b.matmul(b.binary("mul", query, spec.attention_scale), keys, transpose_y=True)
        scores = parts.capped(scores, cap) if cap else scores
        shares = b.like("softmax", b.binary("add", scores, mask), axis=np.int32(3))
        return b.matmul(shares, values)


class Slicing:
    """Writes rows of the cache from a slot on that is an input of the function.

    Args:
        parts: the function, which gets the input ``begin``.
        rows: number of rows that are written.

    """

    def __init__(self, parts: ProgramParts, rows: int) -> None:
        b = self._builder = parts.builder
        self._spec = parts.spec
        self._begin = b.input("begin", Kind.INT32, 1)
        self._end = b.binary("add", self._begin, rows)

    def put(self, cache: Value, entry: int, x: Value) -> tuple[Value, Value | None]:
        """Emit the cache with ``x`` in one of its entries."""
        low, high = (entry, 0), (entry + 1, self._spec.kv_heads)
        return self.update(cache, low, high, self._builder.reshape(x, 1, *x.shape)), None

    def update(self, cache: Value, low: tuple[int, int], high: tuple[int, int], x: Value) -> Value:
        """Emit the cache with ``x`` in these entries and heads, from ``begin`` on."""
        b = self._builder
        begin = b.concat([b.constant(integers(*low)), self._begin, b.constant(integers(0))], 0)
        last = b.constant(integers(self._spec.head_dim))
        end = b.concat([b.constant(integers(*high)), self._end, last], 0)
        return b.like("slice_update", cache, update=x, begin=begin, end=end)


class Blending:
    """Writes rows of the cache by masks, so that all indices in the program are static.

    Args:
        parts: the function, which gets the inputs ``place`` ``[1, n, slots]``, with a 1 in each
            row's slot, and ``keep`` ``[1, slots, 1]``, 1 for slots that do not change.
        rows: number of rows that are written.

    """

    def __init__(self, parts: ProgramParts, rows: int) -> None:
        b = self._builder = parts.builder
        self._spec, self._slots = parts.spec, slots(parts.spec)
        place = b.input("place", HALF, 1, rows, self._slots)
        self._place = b.transpose(place, 0, 2, 1)
        self._keep = b.input("keep", HALF, 1, self._slots, 1)

    def put(self, cache: Value, entry: int, x: Value) -> tuple[Value, Value | None]:
        """Emit the cache with ``x`` in one of its entries, and that whole entry."""
        b, heads, width = self._builder, self._spec.kv_heads, self._spec.head_dim
        low, high = (entry, 0, 0, 0), (entry + 1, heads, self._slots, width)
        old = b.binary("mul", b.part(cache, low, high), self._keep)
        new = b.matmul(self._place, x)
        blended = b.binary("add", old, b.reshape(new, 1, *new.shape))
        begin, end = integers(*low), integers(*high)
        return b.like("slice_update", cache, update=blended, begin=begin, end=end), blended


def cache_state(parts: ProgramParts) -> Value:
    """Declare the cache: keys in even entries, values in odd ones."""
    spec = parts.spec
    return parts.builder.state(STATE, 2 * spec.layers, spec.kv_heads, slots(spec), spec.head_dim)


__all__ = ["STATE", "Attention", "Slicing", "cache_state"]
