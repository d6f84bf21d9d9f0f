"""Compares graphs of static shape with their source.

The logits are those of the written files, on ONNX Runtime and the processor. In addition each layer
is emitted in fp32 and compared with the reference, where any difference beyond rounding is a bug.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.export import static_shapes
from edgedec.export.divergence import OnStep, ParityFigures, check_layer, compare_model
from edgedec.export.flow import Flow
from edgedec.export.graph import DataFile, GraphWriter
from edgedec.export.onnx_static.attention import Attention
from edgedec.export.onnx_static.emitter import StaticOptions
from edgedec.export.onnx_static.parts import StaticParts
from edgedec.export.onnx_static.weights import products
from edgedec.export.parity import FP32_FLOOR, FP32_TOKENS
from edgedec.export.quantize import WeightForm
from edgedec.export.reference import Reference
from edgedec.export.slices import Slices
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.runtimes.onnx_static.model import StaticModel

_LAYER = "layer.onnx"


def compare(
    spec: DecoderSpec,
    tensors: TensorReader,
    folder: Path,
    options: StaticOptions,
    tokens: Sequence[int],
    on_step: OnStep,
) -> ParityFigures:
    """Compare the graphs in ``folder`` with their source on a text.

    Raises:
        ParityError: a layer in fp32 does not compute what the reference does.

    """
    reference = Reference(spec, tensors)
    stream, worst = reference.embed(tokens[:FP32_TOKENS]), 0.0
    for layer in range(spec.layers):
        after = reference.layer(layer, stream)
        got = _layer(spec, tensors, options, layer, stream)
        worst = max(worst, check_layer(layer, stream, got, after, "fp32 graph", FP32_FLOOR))
        stream = after
    model = StaticModel.load(folder)
    try:
        return compare_model(model, spec, tensors, tokens, on_step).result(worst)
    finally:
        model.close()


def _layer(
    spec: DecoderSpec,
    tensors: TensorReader,
    options: StaticOptions,
    layer: int,
    stream: FloatArray,
) -> FloatArray:
    """Return the residual stream after one layer, emitted in fp32 and without a cache."""
    rows = len(stream)
    plain = dataclasses.replace(options, weights="fp32")
    with tempfile.TemporaryDirectory(prefix="edgedec-parity-") as name:
        folder = Path(name)
        with DataFile(folder / "layer.data") as data, GraphWriter(folder, _LAYER, data) as graph:
            store = products(WeightForm("fp32"), graph, tensors, {})
            parts = StaticParts(spec, tensors, graph, store, plain, rows, 1)
            outputs = Flow[str](parts, Attention(parts).layer).layer(layer, "x", None)
            graph.save({})
        feeds = {"x": stream, **_feeds(spec, layer, rows)}
        x, branch = Slices(folder, _LAYER).run(outputs, feeds)
    return x + branch


def _feeds(spec: DecoderSpec, layer: int, rows: int) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of a layer for the first tokens of a text, over a cache of one slot."""
    feeds: dict[str, npt.NDArray[Any]] = {
        f"past_{part}_{layer}": np.zeros((spec.kv_heads, 1, spec.head_dim), np.float32)
        for part in ("key", "value")
    }
    at = np.arange(rows)
    for window in static_shapes.windows(spec):
        seen = at[None] <= at[:, None]
        if window:
            seen &= at[None] > at[:, None] - window
        bias = np.full((1, rows, 1 + rows), static_shapes.HIDDEN, np.float32)
        bias[0, :, 1:][seen] = 0
        feeds[static_shapes.mask_name(window)] = bias
    for index, rope in enumerate(static_shapes.ropes(spec)):
        tables = rope.tables(spec.rotary_dim, rows, spec.max_context)
        feeds[f"cos_{index}"], feeds[f"sin_{index}"] = tables
    return feeds
