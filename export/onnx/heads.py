"""Emits a head as two graphs beside its target: the fusion of streams, and the layer.

``fuse.onnx``: ``states`` float32 [1, n, taps * hidden] to ``carried`` [1, n, hidden]. ``head.onnx``
has the inputs and outputs of a decoder of one layer, and the input ``carried``. Its logits have the
target's columns, -inf for tokens that it does not draft, and its tap is what a row hands to the
next. Its embedding is the target's, and so is the LM head of some; their bytes are stored once.
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
from edgedec.export.flow import Flow
from edgedec.export.graph import DataFile, GraphWriter
from edgedec.export.onnx.assistant import NEXT, Assistant, borrowed
from edgedec.export.onnx.attention import Attention
from edgedec.export.onnx.drafted import OWN_LOGITS, drafted_logits
from edgedec.export.onnx.options import LATEST_VERSION, GraphOptions, metadata
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import TensorReader, read
from edgedec.export.weights import make_format
from edgedec.models.heads.head import (
    FUSE,
    FUSE_NORM,
    HIDDEN_NORM,
    PRODUCT,
    TARGET_NORM,
    TOKEN_NORM,
    HeadSpec,
)

HEAD_FILE, FUSE_FILE = "head.onnx", "fuse.onnx"
FILES = (HEAD_FILE, f"{HEAD_FILE}.data", FUSE_FILE, f"{FUSE_FILE}.data")
_TARGET_FILE = "model.onnx"
# Prefix of what a head with an embedding of its own copies from its target's graph.
_TARGETS = "target."


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
    if spec.layer.head_dim % 8 and not spec.borrows:
        raise UnsupportedArchitecture(
            f"{options.name} has heads of {spec.layer.head_dim} channels, and ONNX Runtime needs"
            " multiples of 8"
        )
    theirs = onnx.load(folder / _TARGET_FILE, load_external_data=False).graph
    errors = _write_fusion(spec, tensors, theirs, folder, options)
    with DataFile(folder / f"{HEAD_FILE}.data") as data:
        graph = GraphWriter(folder, HEAD_FILE, data)
        store = make_format(options.form, graph, tensors)
        parts = GraphParts(spec.layer, tensors, graph, store, options)
        graph.input("input_ids", np.int64, (1, "n"))
        graph.input("carried", np.float32, (1, "n", spec.hidden))
        if spec.borrows:
            _copied(theirs, graph, "embedded", prefix=_TARGETS)
            Assistant(spec, parts, ids).emit(f"{_TARGETS}embedded")
        else:
            _Layer(spec, parts, ids).emit(theirs)
        graph.save({"edgedec": json.dumps(_facts(spec, options))})
    return errors | store.errors


def _facts(spec: HeadSpec, options: GraphOptions) -> Mapping[str, object]:
    # Layers that lend keys and values are the target's, so the head's own metadata has no sizes.
    wide = dataclasses.replace(spec.layer, vocab_size=spec.target_vocab, sizes=())
    own = {"borrows": borrowed(spec), "graph_version": LATEST_VERSION} if spec.borrows else {}
    return {
        **metadata(wide, options),
        "top_k": min(TOP_K, spec.scored),
        "taps": {NEXT: 1},
        "reads": list(spec.taps),
        **own,
    }


def _write_fusion(
    spec: HeadSpec,
    tensors: TensorReader,
    theirs: onnx.GraphProto,
    folder: Path,
    options: GraphOptions,
) -> dict[str, float]:
    with DataFile(folder / f"{FUSE_FILE}.data") as data:
        graph = GraphWriter(folder, FUSE_FILE, data)
        store = make_format(options.form, graph, tensors)
        states = graph.input("states", np.float32, (1, "n", len(spec.taps) * spec.hidden))
        parts = GraphParts(spec.layer, tensors, graph, store, options)
        normed = _normed(spec, parts, states, theirs)
        if spec.fused:
            store.linear(normed, "carried", [FUSE], [])
        else:
            parts.same("carried", normed)
        graph.output("carried", np.float32, (1, "n", spec.hidden))
        graph.save({})
    return store.errors


def _normed(spec: HeadSpec, parts: GraphParts, states: str, theirs: onnx.GraphProto) -> str:
    """Emit the streams after the norms that a head has for them."""
    if spec.borrows:  # its folder has no norm of the target's
        name = spec.layer.name("final_norm")
        (weight,) = (tensor for tensor in theirs.initializer if tensor.name == name)
        return parts.lent_norm("target.normed", states, weight)
    if spec.target_norm:
        return parts.bare_norm("target.normed", states, read(parts.tensors, TARGET_NORM))
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

    def emit(self, theirs: onnx.GraphProto) -> None:
        """Emit the whole graph, with what it shares with the target's graph."""
        g, parts = self._graph, self._parts
        attention = Attention(parts)
        attention.inputs()
        g.input("rows", np.int64, ("r",))
        read, before = self._joined(_embedding(theirs, g))
        attended = attention.layer(0, read, "layers.0.attended")
        normed, x = parts.norm_of_sum("layers.0.mlp_norm", "layers.0.stream", before, attended,
                                      "mlp_norm")  # fmt: skip
        fed = Flow[str](parts, attention.layer).mlp(0, normed, "layers.0.branch")
        self._outputs(g.node("Add", [x, fed], "layers.0.left"), theirs)

    def _joined(self, embedded: str) -> tuple[str, str]:
        """Emit what attention reads, and what its output is added to."""
        g, parts, spec = self._graph, self._parts, self._spec
        state = parts.bare_norm("carried.normed", "carried", read(parts.tensors, HIDDEN_NORM))
        if spec.join == "attention":
            token = parts.norm("token.normed", embedded, "attention_norm")
        else:
            token = parts.bare_norm("token.normed", embedded, read(parts.tensors, TOKEN_NORM))
        halves = [state, token] if spec.state_first else [token, state]
        both = g.node("Concat", halves, "layers.0.read", axis=-1)
        if spec.join == "attention":
            return both, "carried" if spec.residual == "raw" else state
        x = parts.store.linear(both, "layers.0.entry", [PRODUCT], [])
        return parts.norm("layers.0.attention_norm", x, "attention_norm"), x

    def _outputs(self, x: str, theirs: onnx.GraphProto) -> None:
        """Emit what a row hands on, its logits in the target's columns, and the largest."""
        g, parts, layer = self._graph, self._parts, self._spec.layer
        normed = parts.norm("final.normed", x, "final_norm")
        g.node("Identity", [x if self._spec.carry == "raw" else normed], NEXT)
        rows = g.node("Gather", [normed, "rows"], "final.rows", axis=1)
        flat = g.node("Reshape", [rows, parts.dims(-1, layer.hidden)], "final.flat")
        vocab = self._spec.target_vocab
        if self._spec.own_output:
            own = parts.store.head(flat, OWN_LOGITS, layer.name("head"), None)
            drafted_logits(g, own, self._ids.tolist(), vocab)
        else:
            count = min(TOP_K, vocab)
            _copied(theirs, g, "logits", "top_logits")
            g.output("logits", np.float32, ("r", vocab))
            g.output("top_logits", np.float32, ("r", count))
            g.output("top_ids", np.int64, ("r", count))
        g.output(NEXT, np.float32, (1, "n", layer.hidden))


def _embedding(theirs: onnx.GraphProto, graph: GraphWriter) -> str:
    """Copy the lookup of embeddings from the target's graph."""
    # Some targets scale what they look up, which heads have not learnt.
    made = {name for node in theirs.node for name in node.output}
    last = "embedded.rows" if "embedded.rows" in made else "embedded"
    _copied(theirs, graph, last)
    return last


def _copied(theirs: onnx.GraphProto, graph: GraphWriter, *values: str, prefix: str = "") -> None:
    """Copy the nodes that compute these values; weights stay in the target's file.

    ``prefix`` is put before all names except those of inputs.
    """
    makers = {name: index for index, node in enumerate(theirs.node) for name in node.output}
    tensors = {tensor.name: tensor for tensor in theirs.initializer}
    wanted, found = list(values), set[int]()
    while wanted:
        name = wanted.pop()
        if name in tensors:
            graph.data.tensors[prefix + name] = own = onnx.TensorProto()
            own.CopyFrom(tensors[name])
            own.name = prefix + name
        elif name in makers and prefix + name not in graph and makers[name] not in found:
            found.add(makers[name])
            wanted += theirs.node[makers[name]].input
    known = makers.keys() | tensors.keys()
    for index in sorted(found):  # in the order in which they are computed
        node = onnx.NodeProto()
        node.CopyFrom(theirs.node[index])
        for names in (node.input, node.output):
            names[:] = [prefix + name if name in known else name for name in names]
        graph.copy(node)
