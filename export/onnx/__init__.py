"""Emits a decoder as an ONNX graph for ONNX Runtime: GroupQueryAttention over a shared cache.

Inputs: ``input_ids`` and ``position_ids`` int64 [1, n]; ``attention_bias`` float32
[1, 1, n, total]; ``seqlens_k`` int32 [1] (total - 1); ``total_sequence_length`` int32 scalar;
``rows`` int64 [r], the rows whose logits are wanted; per layer ``past_key_i``,
``past_value_i`` float32 [1, kv_heads, capacity, head_dim], or of a short convolution
``past_inputs_i`` float32 [1, kept, hidden], the inputs of the tokens before the pass. With
``own_rows`` also ``attention_rows`` int64 [m], the rows that attention computes (its bias is
[1, 1, m, total] and ``seqlens_k`` counts them), and ``computed_rows`` int64 [n], the ones of those
that it returns.

Outputs: ``logits`` float32 [r, vocab]; ``top_logits``, ``top_ids`` [r, k], best first, equal
logits by id; ``present_key_i``, ``present_value_i``, to be bound to the same memory as the past;
``present_inputs_i`` float32 [1, n, hidden], the inputs of the pass's rows.
"""

from edgedec.export.onnx.emitter import (
    Emitter,
    check_decoder,
    layer_feeds,
    stream_names,
    write_model,
)
from edgedec.export.onnx.options import KV_TYPES, GraphOptions, context, metadata

__all__ = [
    "KV_TYPES",
    "Emitter",
    "GraphOptions",
    "check_decoder",
    "context",
    "layer_feeds",
    "metadata",
    "stream_names",
    "write_model",
]
