"""Emits a decoder as ONNX graphs of static shape, of standard operators only, one for each width.

``static-<n>.onnx`` computes ``n`` tokens, ``static-read-<n>.onnx`` reads those of a prompt and has
no head; all of them share the weights in ``static.data``. Inputs: ``ids`` int32 [n]; ``positions``
int32 [n] where there is a table of positions; ``cos_i`` and ``sin_i`` float32 [n, pairs] for each
rotary embedding; ``bias`` float32 [1, n, slots + n], what is added to scores (``bias_<window>`` for
layers with a window); per layer ``past_key_i`` and ``past_value_i`` float32 [kv_heads, slots,
head_dim]. A row sees slots of the cache and rows of its own pass, which are the last ``n`` columns.

Outputs: ``logits`` float32 [n, vocab]; ``top_logits`` and ``top_ids`` [n, k]; per layer ``key_i``
and ``value_i`` float32 [kv_heads, n, head_dim], which the caller writes into free slots.
"""

from edgedec.export.onnx_static.emitter import (
    DATA,
    GRAPH,
    READER,
    StaticOptions,
    check_decoder,
    files,
    write_graphs,
)

__all__ = ["DATA", "GRAPH", "READER", "StaticOptions", "check_decoder", "files", "write_graphs"]
