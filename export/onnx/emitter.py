"""Emits the whole decoder: embedding, layers over a residual stream, head."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.facts import TOP_K
from edgedec.export.flow import Flow
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx.attention import Attention, attention_feeds
from edgedec.export.onnx.delta_net import DeltaNets
from edgedec.export.onnx.drafted import OWN_LOGITS, drafted_logits, with_rows
from edgedec.export.onnx.late import LateRows
from edgedec.export.onnx.mamba2 import Mambas
from edgedec.export.onnx.options import GraphOptions, context, metadata, tap_name
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.onnx.per_layer import PerLayerInputs
from edgedec.export.onnx.recurrence import (
    mixer_feeds,
    recurrence_feeds,
    recurrence_inputs,
)
from edgedec.export.onnx.short_conv import ShortConvs
from edgedec.export.quantize import Rounding
from edgedec.export.slices import check_runtime
from edgedec.export.tensors import CHUNK_NUMBERS, TensorReader
from edgedec.export.weights import make_format
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet, Mamba2, Mixer, ShortConv
from edgedec.runtimes.onnx.recurrent import SINCE


def write_model(
    spec: DecoderSpec,
    tensors: TensorReader,
    folder: Path,
    options: GraphOptions,
    rounding: Rounding | None = None,
) -> dict[str, float]:
    """Write ``model.onnx`` and its data into ``folder``; quantise by ``rounding``.

    Returns:
        The relative error (root of squared error over squared weights) of each quantised
        tensor.

    Raises:
        UnsupportedArchitecture: the attention kernel does not support the size of the heads.
        RuntimeUnavailable: the installed ONNX Runtime has no kernels for its recurrences.

    """
    check_decoder(spec, options)
    spec, tensors = with_rows(spec.within(options.max_context), tensors, options.drafted)
    with GraphWriter(folder) as graph:
        store = make_format(options.form, graph, tensors, rounding)
        Emitter(GraphParts(spec, tensors, graph, store, options)).model()
        facts = metadata(spec, options)
        if spec.per_layer_inputs:
            facts["looked_up"] = graph.data.size(spec.name("per_layer_table"))
        graph.save({"edgedec": json.dumps(facts)})
    return store.errors


def check_decoder(spec: DecoderSpec, options: GraphOptions) -> None:
    """Refuse a decoder that the installed ONNX Runtime does not compute; see ``write_model``."""
    if spec.recurs:
        check_runtime("layers with a recurrence need", SINCE[1], "--format gguf")
    for dim in (spec.at(layer).head_dim for layer in range(spec.layers)):
        if dim % 8:
            raise UnsupportedArchitecture(
                f"{options.name} has heads of {dim} channels, and ONNX Runtime needs"
                " multiples of 8: try --format gguf"
            )


def stream_names(spec: DecoderSpec, layer: int) -> list[str]:
    """Return the values whose sum is the residual stream before a layer (or after the last).

    Behind them are those of ``DecoderSpec.carried``.
    """
    if layer == 0:
        first = ["embedded", "positioned"] if spec.position_rows else ["embedded"]
        return [*first, *spec.carried(0)]
    return [f"layers.{layer - 1}.stream", f"layers.{layer - 1}.branch", *spec.carried(layer)]


def layer_feeds(spec: DecoderSpec, layer: int, count: int, kv: str) -> dict[str, npt.NDArray[Any]]:
    """Return a layer's inputs other than the residual stream, for ``count`` tokens."""
    kind = spec.mixer(layer)
    if kind is None:
        return attention_feeds(spec, layer, count, kv)
    shared = {"rows": np.arange(count), **recurrence_feeds(spec, count)}
    return mixer_feeds(spec, layer, kind) | shared


_MIXERS: Mapping[type[Mixer], Callable[[GraphParts], Any]] = {
    ShortConv: ShortConvs,
    DeltaNet: DeltaNets,
    Mamba2: Mambas,
}


class Emitter:
    """Writes the nodes of one decoder into a graph; its values are their names."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._graph, self._spec = parts, parts.graph, parts.spec
        self._attention, self._per_layer = Attention(parts), PerLayerInputs(parts)
        self._mixers = {kind: writer(parts) for kind, writer in _MIXERS.items()}
        more = self._spec.per_layer_inputs or self._spec.factors
        end = self._per_layer.layer if more else None
        self._flow = Flow[str](parts, self._mixed, end=end)
        end = PerLayerInputs(parts, self._wanted).layer if more else None
        self._last = Flow[str](parts, self._mixed_where_wanted, self._wanted, end)

    def model(self) -> None:
        """Emit the whole decoder."""
        g, spec, parts = self._graph, self._spec, self._parts
        ids = g.input("input_ids", np.int64, (1, "n"))
        self.attention_inputs()
        g.input("rows", np.int64, ("r",))
        x: str = self._embedded(ids)
        if spec.per_layer_inputs:
            self._per_layer.inputs(ids, x)
        branch: str | None = None
        if spec.position_rows:
            branch = g.node("Gather", [self._position_table(), "position_ids"], "positioned")
        late = LateRows(parts)
        for layer in range(spec.layers):
            if layer == late.first and branch is not None:
                x, branch = late.of(x, 1), late.of(branch, 1)
            if layer < spec.layers - 1:
                x, branch = self.layer(layer, x, branch)
        x, branch = self._last_layer(x, branch)
        normed, _ = parts.norm_of_sum("final", "final.sum", x, branch, "final_norm")
        self.head(g.node("Reshape", [normed, parts.dims(-1, spec.hidden)], "final.flat"))

    def _last_layer(self, x: str, branch: str | None) -> tuple[str, str]:
        """Emit the last layer, and the rows of its stream whose logits are wanted.

        Other rows only add keys and values to the cache, so that what follows attention computes
        none of them, and a prefill pass no row at all, unless the stream after the layer is shown.
        """
        spec, parts, layer = self._spec, self._parts, self._spec.layers - 1
        if spec.layers in parts.options.taps:
            x, branch = self.layer(layer, x, branch)
            parts.add(tap_name(spec, spec.layers), x, branch)
            x, branch = self._wanted(x, "final.x"), self._wanted(branch, "final.branch")
        else:
            x, branch = self._last.layer(layer, x, branch)
        for tap in parts.options.taps:
            self._graph.output(tap_name(spec, tap), np.float32, (1, "n", spec.hidden))
        return x, branch

    def _mixed(self, layer: int, x: str, out: str) -> str:
        """Emit a layer's attention, or what stands in its place."""
        kind = self._spec.mixer(layer)
        if kind is None:
            return self._attention.layer(layer, x, out)
        return self._mixer(layer, kind, x, out)

    def _mixed_where_wanted(self, layer: int, x: str, out: str) -> str:
        """Emit as ``_mixed`` does, but only the rows whose logits are wanted."""
        kind = self._spec.mixer(layer)
        if kind is None:
            return self._attention.wanted(layer, x, out)
        return self._mixer(layer, kind, x, out, "rows")

    def _mixer(self, layer: int, kind: Mixer, x: str, out: str, rows: str = "") -> str:
        emitted: str = self._mixers[type(kind)].layer(layer, kind, x, out, rows)
        return emitted

    def _wanted(self, x: str, out: str) -> str:
        return self._graph.node("Gather", [x, "rows"], out, axis=1)

    def attention_inputs(self) -> None:
        """Declare the inputs of every layer."""
        self._attention.inputs()
        if self._spec.recurs:
            recurrence_inputs(self._graph)

    def _embedded(self, ids: str) -> str:
        spec, store = self._spec, self._parts.store
        scaled = spec.scales.embed != 1
        rows = store.embed(
            ids, "embedded.rows" if scaled else "embedded", spec.name("embed"), spec.tied
        )
        return self._parts.scaled("embedded", rows, spec.scales.embed) if scaled else rows

    def _position_table(self) -> str:
        spec, tensors, name = self._spec, self._parts.tensors, self._spec.name("positions")
        rows = min(spec.position_rows, context(spec, self._parts.options))
        step = max(CHUNK_NUMBERS // spec.hidden, 1)
        chunks = (tensors.rows(name, i, min(i + step, rows)) for i in range(0, rows, step))
        return self._graph.stream(name, np.float32, (rows, spec.hidden), chunks)

    def layer(self, layer: int, x: str, branch: str | None) -> tuple[str, str]:
        """Emit one layer; the returned values are named ``stream_names(spec, layer + 1)``."""
        return self._flow.layer(layer, x, branch)

    def head(self, x: str) -> None:
        """Emit the logits of ``[r, hidden]``, and the largest of each row."""
        g, spec, drafted = self._graph, self._spec, self._parts.options.drafted
        if drafted:
            drafted_logits(g, self._logits(x, OWN_LOGITS, None), drafted, spec.vocab_size)
            return
        mask = None
        if spec.vocab_used < spec.vocab_size:
            padding = np.zeros(spec.vocab_size, np.float32)
            padding[spec.vocab_used :] = -np.inf
            mask = g.constant("padding", padding)
        logits = self._logits(x, "logits", mask)
        k = min(TOP_K, spec.vocab_size)
        count = g.constant("top_k", np.array([k], np.int64))
        g.nodes("TopK", [logits, count], ["top_logits", "top_ids"], axis=-1, largest=1, sorted=1)
        g.output("logits", np.float32, ("r", spec.vocab_size))
        g.output("top_logits", np.float32, ("r", k))
        g.output("top_ids", np.int64, ("r", k))

    def _logits(self, x: str, out: str, mask: str | None) -> str:
        """Emit the head's product and its cap; the cap would make the mask's infinities finite."""
        parts, spec = self._parts, self._spec
        table, cap = spec.name("head"), spec.scales.logit_cap
        if not cap:
            return parts.store.head(x, out, table, mask)
        free = parts.store.head(x, f"{out}.free", table, None)
        logits = parts.capped(f"{out}.capped" if mask else out, free, cap)
        return self._graph.node("Add", [logits, mask], out) if mask else logits
