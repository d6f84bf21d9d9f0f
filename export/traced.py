"""Post-processing of a graph that optimum traced: metadata, padded columns, int8.

Inputs: ``input_ids`` int64 [1, n]; ``attention_mask`` int64 [1, total]; maybe ``position_ids``
int64 [1, n]; per layer ``past_key_values.i.key`` and ``.value`` [1, kv_heads, past, width].
Outputs: ``logits`` float32 [1, n, vocab]; ``present.i.key`` and ``.value`` with n rows more.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgedec.errors import ExportError

GRAPH_VERSION = 1
STYLE = "optimum"
WEIGHTS = ("int8", "fp32")
_METADATA_KEY = "edgedec"
_PAST = "past_key_values."
# Tensors of fewer bytes stay in the graph.
_INLINE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class TracedFacts:
    """The graph's facts for a runtime.

    Attributes:
        vocab_used: columns of logits that are tokens.
        vocab_size: columns of logits; more than the graph has are added.
        weights: one of ``WEIGHTS``.

    """

    name: str
    eos_ids: tuple[int, ...]
    max_context: int
    vocab_used: int
    vocab_size: int
    weights: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The keys and values of a graph.

    Attributes:
        layers: with a cache.
        kv_heads: of the first layer.
        head_dim: numbers a head keeps of a key, in the first layer.
        token_bytes: what all layers keep of a token.

    """

    layers: int
    kv_heads: int
    head_dim: int
    token_bytes: int


def quantize(traced: Path) -> Path:
    """Write a copy of ``traced`` with int8 weights of matrix products, with a scale per column."""
    file = traced.with_name("quantized.onnx")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # its advice is for direct callers
    try:
        quantize_dynamic(
            traced,
            file,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=True,
        )
    except Exception as error:  # the quantiser's errors share no public base
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(
            f"onnxruntime cannot quantise this graph: {lines[0]}: try --weights fp32"
        ) from error
    finally:
        logging.disable(disabled)
    return file


def finish(traced: Path, file: Path, facts: TracedFacts) -> Cache:
    """Write the graph as the runtime needs it, its weights in ``<file>.data``; or ExportError."""
    model = onnx.load(traced)
    del model.metadata_props[:]
    graph = model.graph
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    cache = _cache(graph)
    _columns(model, facts)
    stated = {
        "graph_version": GRAPH_VERSION,
        "style": STYLE,
        **asdict(facts),
        "layers": cache.layers,
        "kv_heads": cache.kv_heads,
        "head_dim": cache.head_dim,
    }
    model.metadata_props.add(key=_METADATA_KEY, value=json.dumps(stated))
    onnx.save_model(
        model,
        file,
        save_as_external_data=True,
        location=f"{file.name}.data",
        size_threshold=_INLINE_BYTES,
    )
    return cache


def _cache(graph: onnx.GraphProto) -> Cache:
    sizes = []
    for value in graph.input:
        if value.name.startswith(_PAST):
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            if len(dims) != 4 or not dims[1] or not dims[3]:
                raise ExportError(f"the traced graph's cache {value.name} has no fixed shape")
            sizes.append((dims[1], dims[3]))
    if not sizes:
        raise ExportError("the traced graph has no keys and values: it is not a decoder with past")
    numbers = sum(heads * width for heads, width in sizes)
    itemsize = np.dtype(np.float32).itemsize
    return Cache(len(sizes) // 2, *sizes[0], numbers * itemsize)


def _columns(model: onnx.ModelProto, facts: TracedFacts) -> None:
    """Give the logits ``vocab_size`` columns; those that are not tokens become -inf."""
    graph = model.graph
    (logits,) = (value for value in graph.output if value.name == "logits")
    columns = logits.type.tensor_type.shape.dim[2]
    if not columns.dim_value or not 0 < facts.vocab_used <= columns.dim_value:
        raise ExportError(f"the traced graph has no {facts.vocab_used} columns of logits")
    if facts.vocab_used == columns.dim_value == facts.vocab_size:
        return
    for node in graph.node:
        node.output[:] = ["logits.all" if name == "logits" else name for name in node.output]
    graph.initializer.extend(
        [
            _integers("logits.first", [0]),
            _integers("logits.used", [facts.vocab_used]),
            _integers("logits.axis", [2]),
            _integers("logits.pads", [0] * 5 + [facts.vocab_size - facts.vocab_used]),
            numpy_helper.from_array(np.array(-np.inf, np.float32), "logits.never"),
        ]
    )
    places = ["logits.all", "logits.first", "logits.used", "logits.axis"]
    graph.node.extend(
        [
            helper.make_node("Slice", places, ["logits.tokens"]),
            helper.make_node("Pad", ["logits.tokens", "logits.pads", "logits.never"], ["logits"]),
        ]
    )
    columns.dim_value = facts.vocab_size


def _integers(name: str, values: Sequence[int]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)
