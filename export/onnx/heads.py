"""Emits a head as two graphs beside its target: the fusion of streams, and the layer.

``fuse.onnx``: ``states`` float32 [1, n, taps * hidden] to ``carried`` [1, n, hidden]. ``head.onnx``
has the inputs and outputs of a decoder of one layer, and the input ``carried``. Its logits have the
target's columns, -inf for tokens that it does not draft, and its tap is what a row hands to the
next. Its embedding is the target's, whose bytes are stored once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.facts import TOP_K
from edgedec.export.graph import DataFile, GraphWriter
from edgedec.export.onnx.attention import Attention
from edgedec.export.onnx.drafted import drafted_logits
from edgedec.export.onnx.options import GraphOptions, metadata
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import TensorReader, read
from edgedec.export.weights import make_format
from edgedec.models.heads.head import FUSE, FUSE_NORM, HIDDEN_NORM, HeadSpec

HEAD_FILE, FUSE_FILE = "head.onnx", "fuse.onnx"
FILES = (HEAD_FILE, f"{HEAD_FILE}.data", FUSE_FILE, f"{FUSE_FILE}.data")
_TARGET_FILE = "model.onnx"
_NEXT = "carried.next"


def write_head(
    spec: HeadSpec,
    tensors: TensorReader,
    ids: npt.NDArray[np.int64],
    folder: Path,
    options: GraphOptions,
) -> dict[str, float]:
    """Write both graphs into the folder of the target's ``model.onnx``.

    Args:
        spec, tensors, ids: of the head's checkpoint.
        folder: of the target's graph.
        options: of the head; ``max_context`` is the target's.

    Returns:
        The relative error of each quantised tensor.

    Raises:
        UnsupportedArchitecture: the attention kernel does not support the size of the heads.

    """
    if spec.layer.head_dim % 8:
        raise UnsupportedArchitecture(
            f"{options.name} has heads of {spec.layer.head_dim} channels, and ONNX Runtime needs"
            " multiples of 8"
        )
    errors = _write_fusion(spec, tensors, folder, options)
    with DataFile(folder / f"{HEAD_FILE}.data") as data:
        graph = GraphWriter(folder, HEAD_FILE, data)
        store = make_format(options.form, graph, tensors)
        parts = GraphParts(spec.layer, tensors, graph, store, options)
        _Layer(spec, parts, ids).emit(folder / _TARGET_FILE)
        graph.save({"edgedec": json.dumps(_facts(spec, options))})
    return errors | store.errors


def _facts(spec: HeadSpec, options: GraphOptions) -> Mapping[str, object]:
    wide = dataclasses.replace(spec.layer, vocab_size=spec.target_vocab)
    return {
        **metadata(wide, options),
        "top_k": min(TOP_K, spec.layer.vocab_size),
        "taps": {_NEXT: 1},
        "reads": list(spec.taps),
    }


def _write_fusion(
    spec: HeadSpec, tensors: TensorReader, folder: Path, options: GraphOptions
) -> dict[str, float]:
    with DataFile(folder / f"{FUSE_FILE}.data") as data:
        graph = GraphWriter(folder, FUSE_FILE, data)
        store = make_format(options.form, graph, tensors)
        states = graph.input("states", np.float32, (1, "n", len(spec.taps) * spec.hidden))
        parts = GraphParts(spec.layer, tensors, graph, store, options)
        store.linear(_normed(spec, parts, states), "carried", [FUSE], [])
        graph.output("carried", np.float32, (1, "n", spec.hidden))
        graph.save({})
    return store.errors


def _normed(spec: HeadSpec, parts: GraphParts, states: str) -> str:
    """Emit the streams after the norms that a head has for them."""
    if not spec.fuse_norm:
        return states
    names = ["all"] if spec.fuse_norm == "all" else [str(tap) for tap in range(len(spec.taps))]
    streams = [states]
    if len(names) > 1:
        streams = [f"stream.{name}" for name in names]
        parts.graph.nodes("Split", [states], streams, axis=-1, num_outputs=len(names))
    normed = [
        parts.bare_norm(f"{stream}.normed", stream, read(parts.tensors, FUSE_NORM.format(tap=name)))
        for stream, name in zip(streams, names, strict=True)
    ]
    return normed[0] if len(normed) == 1 else parts.graph.node("Concat", normed, "fused", axis=-1)


class _Layer:
    """Emits ``head.onnx``."""

    def __init__(self, spec: HeadSpec, parts: GraphParts, ids: npt.NDArray[np.int64]) -> None:
        self._spec, self._parts, self._graph, self._ids = spec, parts, parts.graph, ids

    def emit(self, target: Path) -> None:
        """Emit the whole graph, with the embedding of the target's graph."""
        g, parts, layer = self._graph, self._parts, self._spec.layer
        g.input("input_ids", np.int64, (1, "n"))
        carried = g.input("carried", np.float32, (1, "n", layer.hidden))
        attention = Attention(parts)
        attention.inputs()
        g.input("rows", np.int64, ("r",))
        token = parts.norm("token.normed", _embedding(target, g), "attention_norm")
        norm = read(parts.tensors, HIDDEN_NORM)
        state = parts.bare_norm("carried.normed", carried, norm)
        both = g.node("Concat", [token, state], "layers.0.read", axis=-1)
        attended = attention.layer(0, both, "layers.0.attended")
        before = carried if self._spec.residual == "raw" else state
        normed, x = parts.norm_of_sum("layers.0.mlp_norm", "layers.0.stream", before, attended,
                                      "mlp_norm")  # fmt: skip
        fed = self._fed(normed)
        self._outputs(g.node("Add", [x, fed], "layers.0.left"))

    def _fed(self, x: str) -> str:
        parts, layer = self._parts, self._spec.layer
        both = parts.linear("layers.0.gate_up", x, 0, ("gate", "up"), layer.mlp_bias)
        gate, up = parts.halves(both, "layers.0.gate", "layers.0.up")
        inner = parts.multiplied("layers.0.gated", parts.activated("layers.0.active", gate), up)
        return parts.linear("layers.0.branch", inner, 0, ("down",), layer.mlp_bias)

    def _outputs(self, x: str) -> None:
        """Emit what a row hands on, its logits in the target's columns, and the largest."""
        g, parts, layer = self._graph, self._parts, self._spec.layer
        normed = parts.norm("final.normed", x, "final_norm")
        g.node("Identity", [x if self._spec.carry == "raw" else normed], _NEXT)
        rows = g.node("Gather", [normed, "rows"], "final.rows", axis=1)
        flat = g.node("Reshape", [rows, parts.dims(-1, layer.hidden)], "final.flat")
        own = parts.store.head(flat, "own.logits", layer.name("head"), None)
        drafted_logits(g, own, self._ids.tolist(), self._spec.target_vocab)
        g.output(_NEXT, np.float32, (1, "n", layer.hidden))


def _embedding(target: Path, graph: GraphWriter) -> str:
    """Copy the lookup of embeddings from the target's graph; its weights stay where they are."""
    model = onnx.load(target, load_external_data=False).graph
    makers = {name: node for node in model.node for name in node.output}
    tensors = {tensor.name: tensor for tensor in model.initializer}
    # Some targets scale what they look up, which heads have not learnt.
    last = "embedded.rows" if "embedded.rows" in makers else "embedded"
    wanted, found = [last], []
    while wanted:
        name = wanted.pop()
        if name in tensors:
            graph.data.tensors[name] = tensors[name]
        elif name in makers:
            found.append(makers[name])
            wanted += makers[name].input
    for node in reversed(found):
        graph.copy(node)
    return last
