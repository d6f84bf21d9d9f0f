"""Translates an exported graph's attention and rotation for OpenVINO.

The kernel ``GroupQueryAttention`` writes new keys and values into the cache that it is given. Here
the cache is only read, and the pass's own keys and values are outputs of the graph. Attention is
computed as if they were in their slots, so that a row sums the same numbers in the same order
whether an earlier pass or its own computed them: scores with the pass's own keys are put at the
positions of their slots, and values are summed up in blocks of slots, of which those with new
values are computed from copies that include them. The query heads of a group are rows of one
product, so the cache is read once for all of them.

OpenVINO's own translation of a partial rotary embedding rotates the wrong channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from openvino import Node, Output
from openvino import opset13 as op
from openvino.frontend import NodeContext

from edgedec.runtimes.onnx.openvino.cache import BLOCK

DOMAIN = "com.microsoft"
# Inputs of attention.
_QUERY, _KEY, _VALUE, _PAST_KEY, _PAST_VALUE = range(5)
# In ONNX Runtime these inputs are lengths; here, the slot of each row, and the blocks of these
# slots.
_PLACES, _BLOCKS = range(5, 7)
_COS, _SIN, _POSITIONS, _BIAS = range(7, 11)


def rotary_embedding(node: NodeContext) -> list[Output]:
    """Return queries or keys, ``[1, rows, heads * width]``, after their rotation."""
    x, positions, *tables = (node.get_input(at) for at in range(4))
    heads, rotated = node.get_attribute("num_heads"), node.get_attribute("rotary_embedding_dim")
    width = x.get_partial_shape()[2].get_length() // heads
    each = _by_heads(x, heads, width)
    cos, sin = (_of_rows(table, positions) for table in tables)
    first, rest = op.variadic_split(each, _ints(-1), _ints(rotated, width - rotated)).outputs()
    whole = op.concat([_rotated(first, cos, sin, rotated // 2), rest], axis=-1)
    together = op.reshape(
        op.transpose(whole, _ints(0, 2, 1, 3)), _ints(0, 0, heads * width), special_zero=True
    )
    return [_output(together)]


def group_query_attention(node: NodeContext) -> list[Output]:
    """Return the rows of attention, and the pass's new keys and values.

    Raises:
        ValueError: a form of the operator that the exporter does not write for this runtime.

    """
    if node.has_attribute("k_quant_type"):
        raise ValueError("keys and values in int8")
    heads, kv_heads = node.get_attribute("num_heads"), node.get_attribute("kv_num_heads")
    past_key, past_value = node.get_input(_PAST_KEY), node.get_input(_PAST_VALUE)
    width = past_key.get_partial_shape()[3].get_length()
    query, key, value = _projected(node, heads, kv_heads, width)
    if node.get_attribute("do_rotary"):
        tables = (_of_rows(node.get_input(at), node.get_input(_POSITIONS)) for at in (_COS, _SIN))
        cos, sin = tables
        query, key = (_rotated(x, cos, sin, width // 2) for x in (query, key))
    query = op.multiply(query, _float(node.get_attribute("scale")))
    query = op.reshape(query, _ints(0, kv_heads, -1, width), special_zero=True)
    seen = op.matmul(query, past_key, transpose_a=False, transpose_b=True)
    own = op.matmul(query, key, transpose_a=False, transpose_b=True)
    places = op.reshape(node.get_input(_PLACES), _ints(-1), special_zero=False)
    blocks = op.reshape(node.get_input(_BLOCKS), _ints(-1), special_zero=False)
    scores = op.scatter_update(seen, places, own, _ints(3))
    cap = node.get_attribute("softcap") if node.has_attribute("softcap") else 0.0
    if cap:
        scores = op.multiply(op.tanh(op.divide(scores, _float(cap))), _float(cap))
    chances = op.softmax(_biased(scores, node.get_input(_BIAS), heads, kv_heads), axis=-1)
    mixed = _mixed(chances, past_value, value, places, blocks)
    mixed = op.reshape(mixed, _ints(1, heads, -1, width), special_zero=False)
    mixed = op.transpose(mixed, _ints(0, 2, 1, 3))
    rows = op.reshape(mixed, _ints(0, 0, heads * width), special_zero=True)
    return [_output(rows), _output(key), _output(value)]


# Translations by operator.
TRANSLATIONS = {
    "GroupQueryAttention": group_query_attention,
    "RotaryEmbedding": rotary_embedding,
}


def _projected(node: NodeContext, heads: int, kv_heads: int, width: int) -> Sequence[Output | Node]:
    """Return query, key and value, ``[1, heads, rows, width]``, from one input or three."""
    counts = (heads, kv_heads, kv_heads)
    packed = node.get_input(_QUERY)
    if packed.get_partial_shape()[2] == sum(counts) * width:
        each = _by_heads(packed, sum(counts), width)
        parts: list[Output] = op.variadic_split(each, _ints(1), _ints(*counts)).outputs()
        return parts
    inputs = (node.get_input(at) for at in (_QUERY, _KEY, _VALUE))
    return [_by_heads(x, count, width) for x, count in zip(inputs, counts, strict=True)]


def _by_heads(x: Output, count: int, width: int) -> Node:
    """Return ``[1, rows, count * width]`` as ``[1, count, rows, width]``."""
    split = op.reshape(x, _ints(0, 0, count, width), special_zero=True)
    return op.transpose(split, _ints(0, 2, 1, 3))


def _of_rows(table: Output, positions: Output) -> Node:
    """Return a rotary table's rows at these positions, ``[1, 1, rows, half]``."""
    return op.unsqueeze(op.gather(table, positions, _ints(0)), _ints(1))


def _rotated(x: Output | Node, cos: Node, sin: Node, half: int) -> Node:
    """Return queries or keys after their rotation.

    In this form OpenVINO recognises it and computes it in one kernel; with ``Split`` it would not.
    """
    first, second = op.variadic_split(x, _ints(-1), _ints(half, half)).outputs()
    return op.concat(
        [
            op.subtract(op.multiply(first, cos), op.multiply(second, sin)),
            op.add(op.multiply(second, cos), op.multiply(first, sin)),
        ],
        axis=-1,
    )


def _biased(scores: Node, bias: Output, heads: int, kv_heads: int) -> Node:
    """Add the bias ``[1, 1, rows, slots]`` to scores ``[1, kv_heads, group * rows, slots]``."""
    sizes = op.shape_of(bias)
    rows, slots = (op.gather(sizes, _ints(at), _ints(0)) for at in (2, 3))
    apart = op.concat([_ints(kv_heads, heads // kv_heads), rows, slots], axis=0)
    together = op.concat([_ints(1, kv_heads, -1), slots], axis=0)
    split = op.add(op.reshape(scores, apart, special_zero=False), bias)
    return op.reshape(split, together, special_zero=False)


def _mixed(chances: Node, past: Output, own: Output | Node, places: Node, blocks: Node) -> Node:
    """Return the sum of values weighted by ``chances``, ``[1, kv_heads, group * rows, width]``."""
    width = past.get_partial_shape()[3].get_length()
    apart = op.reshape(chances, _ints(0, 0, 0, -1, BLOCK), special_zero=True)
    apart = op.transpose(apart, _ints(0, 1, 3, 2, 4))
    values = op.reshape(past, _ints(0, 0, -1, BLOCK, width), special_zero=True)
    sums = op.matmul(apart, values, transpose_a=False, transpose_b=False)
    touched = op.reshape(
        op.gather(values, blocks, _ints(2)), _ints(0, 0, -1, width), special_zero=True
    )
    first = op.gather(blocks, _ints(0), _ints(0))
    start = op.multiply(first, op.constant(np.array([BLOCK], np.int32)))
    touched = op.scatter_update(touched, op.subtract(places, start), own, _ints(2))
    touched = op.reshape(touched, _ints(0, 0, -1, BLOCK, width), special_zero=True)
    with_own = op.matmul(
        op.gather(apart, blocks, _ints(2)), touched, transpose_a=False, transpose_b=False
    )
    return op.reduce_sum(
        op.scatter_update(sums, blocks, with_own, _ints(2)), _ints(2), keep_dims=False
    )


def _ints(*values: int) -> Node:
    return op.constant(np.array(values, np.int64))


def _float(value: float) -> Node:
    return op.constant(np.float32(value))


def _output(x: Any) -> Output:
    return x.output(0) if isinstance(x, Node) else x
