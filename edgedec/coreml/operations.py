"""The operations of a decoder's program, in numpy, as coremltools documents them.

Floating-point values are float32 arrays throughout; ``Interpreter`` rounds those that the program
declares as fp16. What CoreML leaves undefined, such as an index beyond the end, is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec.coreml.types import Array

Arguments = Mapping[str, Any]
Shape = tuple[int, ...]
# Numbers of one value: a gigabyte of float32.
MOST_NUMBERS = 1 << 28


class Undefined(Exception):
    """An operation was given what its definition does not allow."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is known of an operation.

    Attributes:
        compute: returns its result, or its results as a tuple.
        alike: parameters whose data type is that of its first result.
        rounds: whether its result is a new number, which fp16 rounds.
        shape: the extents of its result, where those could be far larger than its inputs.

    """

    compute: Callable[[Arguments], Any]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    alike: tuple[str, ...] = ("x",)
    rounds: bool = False
    shape: Callable[[Arguments], Shape] | None = None


# -- products and sums --------------------------------------------------------------------------


def _linear(a: Arguments) -> Array:
    product: Array = a["x"] @ a["weight"].T
    return _sum(product, a["bias"]) if "bias" in a else product


def _sum(x: Array, y: Array) -> Array:
    total: Array = x + y
    return total


def _matmul(a: Arguments) -> Array:
    x, y = a["x"], a["y"]
    x = x.swapaxes(-1, -2) if a.get("transpose_x", False) else x
    product: Array = x @ (y.swapaxes(-1, -2) if a.get("transpose_y", False) else y)
    return product


def _matmul_shape(a: Arguments) -> Shape:
    x, y = a["x"].shape, a["y"].shape
    rows = x[-1] if a.get("transpose_x", False) else x[-2]
    columns = y[-2] if a.get("transpose_y", False) else y[-1]
    return (*np.broadcast_shapes(x[:-2], y[:-2]), rows, columns)


def _attention(a: Arguments) -> Array:
    query, key = a["query"], a["key"]
    scores = query @ key.swapaxes(-1, -2) / np.float32(math.sqrt(query.shape[-1]))
    if "attn_mask" in a:
        scores = scores + a["attn_mask"]
    mixed: Array = softmax(scores) @ a["value"]
    return mixed


def _attention_shape(a: Arguments) -> Shape:
    query, key, value = (a[name].shape for name in ("query", "key", "value"))
    scores: Shape = (*np.broadcast_shapes(query[:-2], key[:-2]), query[-2], key[-2])
    if "attn_mask" in a:
        scores = np.broadcast_shapes(scores, a["attn_mask"].shape)
    if math.prod(scores) > MOST_NUMBERS:
        raise Undefined(f"scores of {scores}")
    return (*np.broadcast_shapes(scores[:-2], value[:-2]), scores[-2], value[-1])


def softmax(x: Array, axis: int = -1) -> Array:
    """Return the softmax along an axis."""
    powers = np.exp(x - x.max(axis, keepdims=True))
    share: Array = powers / powers.sum(axis, keepdims=True)
    return share


def _reduced(how: Callable[..., Array]) -> Callable[[Arguments], Array]:
    return lambda a: how(a["x"], tuple(a["axes"].tolist()), keepdims=bool(a.get("keep_dims")))


def _layer_norm(a: Arguments) -> Array:
    x, axes = a["x"], tuple(a["axes"].tolist())
    x = x - x.mean(axes, keepdims=True)
    normed: Array = x / np.sqrt(np.square(x).mean(axes, keepdims=True) + a["epsilon"])
    normed = normed * a["gamma"] if "gamma" in a else normed
    return normed + a["beta"] if "beta" in a else normed


def _silu(a: Arguments) -> Array:
    with np.errstate(over="ignore"):
        active: Array = a["x"] / (1 + np.exp(-a["x"]))
    return active


def _gelu(a: Arguments) -> Array:
    x = a["x"]
    if a.get("mode", "EXACT") == "TANH_APPROXIMATION":
        inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
        active: Array = x * (1 + np.tanh(inner)) / 2
        return active
    if a.get("mode", "EXACT") != "EXACT":
        raise Undefined(f"mode {a['mode']}")
    active = (x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2).astype(np.float32)
    return active


# -- shapes and places --------------------------------------------------------------------------


def _gather(a: Arguments) -> Array:
    x, indices, axis = a["x"], a["indices"].astype(np.int64), int(a.get("axis", 0))
    if indices.size and not 0 <= indices.min() <= indices.max() < x.shape[axis]:
        raise Undefined(f"index {indices.max()} of {x.shape[axis]}")
    found: Array = np.take(x, indices, axis=axis)
    return found


def _gather_shape(a: Arguments) -> Shape:
    shape, axis = a["x"].shape, int(a.get("axis", 0))
    if a.get("batch_dims", 0):
        raise Undefined("batch_dims")
    _inside(axis, len(shape))
    at = axis % len(shape)
    return (*shape[:at], *a["indices"].shape, *shape[at + 1 :])


def _inside(axis: int, rank: int) -> None:
    if not -rank <= axis < rank:
        raise Undefined(f"axis {axis} of {rank}")


def slices(x: Array, a: Arguments) -> tuple[slice, ...]:
    """Return the slices that ``begin`` and ``end`` mean, without strides or masks."""
    begin, end = a["begin"].tolist(), a["end"].tolist()
    if len(begin) != x.ndim or len(end) != x.ndim:
        raise Undefined(f"a slice of {len(begin)} axes of {x.ndim}")
    for low, high, size in zip(begin, end, x.shape, strict=True):
        if not 0 <= low < high <= size:
            raise Undefined(f"the slice {low}:{high} of {size}")
    return tuple(map(slice, begin, end))


def _slice(a: Arguments) -> Array:
    found: Array = a["x"][slices(a["x"], a)]
    return found


def _split(a: Arguments) -> tuple[Array, ...]:
    x, axis = a["x"], int(a["axis"])
    _inside(axis, x.ndim)
    if "split_sizes" in a:
        sizes = a["split_sizes"].tolist()
        if min(sizes) < 1 or sum(sizes) != x.shape[axis]:
            raise Undefined(f"a split of {x.shape[axis]} into {sizes}")
        return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis))
    count = int(a["num_splits"])
    if not 1 <= count <= x.shape[axis] or x.shape[axis] % count:
        raise Undefined(f"a split of {x.shape[axis]} into {count}")
    return tuple(np.split(x, count, axis))


def _concat(a: Arguments) -> Array:
    if a.get("interleave", False):
        raise Undefined("interleave")
    joined: Array = np.concatenate(a["values"], axis=int(a["axis"]))
    return joined


def _reshape(a: Arguments) -> Array:
    shape = tuple(a["shape"].tolist())
    if min(shape) < 1:
        raise Undefined(f"the shape {shape}")
    shaped: Array = a["x"].reshape(shape)
    return shaped


def _tile_shape(a: Arguments) -> Shape:
    reps = a["reps"].tolist()
    if len(reps) != a["x"].ndim or min(reps) < 1:
        raise Undefined(f"reps {reps}")
    return tuple(size * times for size, times in zip(a["x"].shape, reps, strict=True))


def _cast(a: Arguments) -> Array:
    x = a["x"]
    if a["dtype"] in ("fp16", "fp32"):
        whole: Array = x.astype(np.float32)
        return whole
    kinds = {"int32": np.int32, "int16": np.int16, "uint16": np.uint16}
    if a["dtype"] not in kinds:
        raise Undefined(f"dtype {a['dtype']}")
    cast: Array = x.astype(kinds[a["dtype"]])
    if not np.array_equal(cast, x):
        raise Undefined(f"a number beyond {a['dtype']}")
    return cast


def _topk(a: Arguments) -> tuple[Array, Array]:
    x, k, axis = a["x"], int(a["k"]), int(a.get("axis", -1))
    if a.get("ascending", False) or axis not in (-1, x.ndim - 1) or not 1 <= k <= x.shape[-1]:
        raise Undefined(f"the {k} largest of {x.shape} along {axis}")
    found = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, found, -1), found.astype(np.int32)


# -- the table ----------------------------------------------------------------------------------


def _broadcast(a: Arguments) -> Shape:
    return np.broadcast_shapes(a["x"].shape, a["y"].shape)


def _binary(compute: Callable[[Any, Any], Any]) -> Rule:
    return Rule(
        lambda a: compute(a["x"], a["y"]), ("x", "y"),
        alike=("x", "y"), rounds=True, shape=_broadcast,
    )  # fmt: skip


def _unary(compute: Callable[[Arguments], Any], *required: str, optional: str = "") -> Rule:
    more = (optional,) if optional else ()
    return Rule(compute, ("x", *required), more, rounds=True)


RULES: Mapping[str, Rule] = {
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "real_div": _binary(np.divide),
    "linear": Rule(
        _linear, ("x", "weight"), ("bias",), alike=("x", "weight", "bias"), rounds=True,
        shape=lambda a: (*a["x"].shape[:-1], len(a["weight"])),
    ),
    "matmul": Rule(
        _matmul, ("x", "y"), ("transpose_x", "transpose_y"), alike=("x", "y"), rounds=True,
        shape=_matmul_shape,
    ),
    "scaled_dot_product_attention": Rule(
        _attention, ("query", "key", "value"), ("attn_mask",),
        alike=("query", "key", "value", "attn_mask"), rounds=True, shape=_attention_shape,
    ),
    "softmax": _unary(lambda a: softmax(a["x"], int(a.get("axis", -1))), optional="axis"),
    "rsqrt": _unary(lambda a: 1 / np.sqrt(a["x"] + a["epsilon"]), "epsilon"),
    "tanh": _unary(lambda a: np.tanh(a["x"])),
    "silu": _unary(_silu),
    "gelu": _unary(_gelu, optional="mode"),
    "reduce_mean": _unary(_reduced(np.mean), "axes", optional="keep_dims"),
    "reduce_sum": _unary(_reduced(np.sum), "axes", optional="keep_dims"),
    "layer_norm": Rule(
        _layer_norm, ("x", "axes", "epsilon"), ("gamma", "beta"),
        alike=("x", "gamma", "beta", "epsilon"), rounds=True,
    ),
    "gather": Rule(
        _gather, ("x", "indices"), ("axis", "batch_dims", "validate_indices"), shape=_gather_shape
    ),
    "slice_by_index": Rule(_slice, ("x", "begin", "end")),
    "slice_update": Rule(_slice, ("x", "update", "begin", "end"), alike=("x", "update")),
    "split": Rule(_split, ("x", "axis"), ("num_splits", "split_sizes")),
    "concat": Rule(_concat, ("values", "axis"), ("interleave",), alike=("values",)),
    "reshape": Rule(_reshape, ("x", "shape")),
    "transpose": Rule(lambda a: a["x"].transpose(tuple(a["perm"].tolist())), ("x", "perm")),
    "tile": Rule(
        lambda a: np.tile(a["x"], tuple(a["reps"].tolist())), ("x", "reps"), shape=_tile_shape
    ),
    "identity": Rule(lambda a: a["x"], ("x",)),
    "cast": Rule(_cast, ("x", "dtype"), alike=(), rounds=True),
    "topk": Rule(
        _topk, ("x", "k"),
        ("axis", "ascending", "sort", "return_indices", "output_indices_dtype"),
    ),
    "read_state": Rule(lambda a: a["input"], ("input",), alike=()),
    "write_state": Rule(lambda a: None, ("input", "data"), alike=()),
}  # fmt: skip
