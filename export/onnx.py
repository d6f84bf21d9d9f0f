"""Emits a decoder as an ONNX graph for ONNX Runtime: GroupQueryAttention over a shared cache.

Inputs: ``input_ids`` and ``position_ids`` int64 [1, n]; ``attention_bias`` float32
[1, 1, n, total]; ``seqlens_k`` int32 [1] (total - 1); ``total_sequence_length`` int32 scalar;
``rows`` int64 [r], the rows whose logits are wanted; per layer ``past_key_i``,
``past_value_i`` float32 [1, kv_heads, capacity, head_dim].

Outputs: ``logits`` float32 [r, vocab]; ``top_logits``, ``top_ids`` [r, k], best first, equal
logits by id; ``present_key_i``, ``present_value_i``, to be bound to the same memory as the past.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.graph import GraphWriter
from edgedec.export.tensors import FloatArray, TensorReader, read
from edgedec.export.weights import MICROSOFT, Format, make_format
from edgedec.models.decoder import DecoderSpec

GRAPH_VERSION = 1
KV_TYPES = {"fp32": np.float32, "int8": np.int8}
TOP_K = 8
# Nodes of the largest tree: how far a node's slot may lie beyond its position.
_TREE_SLOTS = 1024


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """What a graph is to be.

    Attributes:
        name: of the model, for reports.
        eos_ids: tokens that end a text.
        weights: ``int4``, ``int8``, ``fp16`` or ``fp32``.
        kv: ``fp32`` or ``int8``.
        block_size: weights that share a scale.
        max_context: positions of the rotary tables; None is the model's own context.
        kv_scales: per layer those of keys and values, ``[kv_heads, head_dim]``; for int8.

    """

    name: str
    eos_ids: tuple[int, ...] = ()
    weights: str = "int4"
    kv: str = "fp32"
    block_size: int = 32
    max_context: int | None = None
    kv_scales: tuple[tuple[FloatArray, FloatArray], ...] = field(default=(), repr=False)


def write_model(
    spec: DecoderSpec, tensors: TensorReader, folder: Path, options: GraphOptions
) -> dict[str, float]:
    """Write ``model.onnx`` and its data into ``folder``.

    Returns:
        The relative error (root of squared error over squared weights) of each quantised
        tensor.

    """
    with GraphWriter(folder) as graph:
        store = make_format(options.weights, options.block_size, graph, tensors)
        Emitter(spec, tensors, graph, store, options).model()
        graph.save({"edgedec": json.dumps(metadata(spec, options))})
    return store.errors


def metadata(spec: DecoderSpec, options: GraphOptions) -> dict[str, object]:
    """What a runtime has to know about a graph, as stored in its metadata_props."""
    return {
        "graph_version": GRAPH_VERSION,
        "name": options.name,
        "layers": spec.layers,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "vocab_used": spec.vocab_used,
        "max_context": context(spec, options),
        "windows": list(spec.windows) if any(spec.windows) else None,
        "eos_ids": list(options.eos_ids),
        "kv": options.kv,
        "weights": options.weights,
        "block_size": options.block_size,
        "top_k": min(TOP_K, spec.vocab_size),
    }


def context(spec: DecoderSpec, options: GraphOptions) -> int:
    """Tokens the graph has rotary tables for."""
    return min(options.max_context or spec.max_context, spec.max_context)


def attention_feeds(
    spec: DecoderSpec, layer: int, count: int, kv: str
) -> dict[str, npt.NDArray[Any]]:
    """What a layer reads beside the residual stream, for a text of ``count`` tokens."""
    feeds: dict[str, npt.NDArray[Any]] = {
        "position_ids": np.arange(count)[None],
        "attention_bias": np.zeros((1, 1, count, count), np.float32),
        "seqlens_k": np.array([count - 1], np.int32),
        "total_sequence_length": np.array(count, np.int32),
    }
    cache = np.zeros((1, spec.kv_heads, count, spec.head_dim), KV_TYPES[kv])
    return feeds | {f"past_{part}_{layer}": cache for part in ("key", "value")}


class Emitter:
    """Writes the nodes of one decoder into a graph."""

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: TensorReader,
        graph: GraphWriter,
        store: Format,
        options: GraphOptions,
    ) -> None:
        self._spec, self._tensors, self._graph, self._store = spec, tensors, graph, store
        self._options = options

    def model(self) -> None:
        """The whole decoder."""
        if self._spec.activation != "silu":
            raise UnsupportedArchitecture(f"activation {self._spec.activation}")
        g, spec = self._graph, self._spec
        ids = g.input("input_ids", np.int64, (1, "n"))
        self.attention_inputs()
        g.input("rows", np.int64, ("r",))
        x, branch = self._store.embed(ids, "embedded", spec.name("embed"), spec.tied), ""
        for layer in range(spec.layers):
            x, branch = self.layer(layer, x, branch)
        x = g.node("Gather", [x, "rows"], "final.x", axis=1)
        branch = g.node("Gather", [branch, "rows"], "final.branch", axis=1)
        normed, _ = self._norm("final", x, branch, spec.name("final_norm"))
        flat = g.node("Reshape", [normed, self._dims(-1, spec.hidden)], "final.flat")
        self.head(flat)

    def attention_inputs(self) -> None:
        """Inputs that every layer reads, and the rotary tables."""
        g, spec = self._graph, self._spec
        g.input("position_ids", np.int64, (1, "n"))
        g.input("attention_bias", np.float32, (1, 1, "n", "total"))
        g.input("seqlens_k", np.int32, (1,))
        g.input("total_sequence_length", np.int32, ())
        tables = spec.rope_tables(0, context(spec, self._options))
        for name, table in zip(("cos", "sin"), tables or (), strict=True):
            g.constant(name, table)
        for window in sorted(set(spec.windows) - {0}):
            self._window_bias(window)

    def _window_bias(self, window: int) -> None:
        """The attention bias, with -inf for what lies before each row's window.

        The kernel's own window counts slots. In a tree a node's slot lies beyond its position,
        and the kernel would hide the oldest tokens of its window.
        """
        g = self._graph
        zero, one = (g.constant(f"number.{i}", np.array(i, np.int64)) for i in (0, 1))
        size = g.constant(f"window.{window}", np.array([[[[window]]]], np.int64))
        axes = g.constant("window.axes", np.array([1, 3], np.int64))
        hidden = g.constant("window.hidden", np.array(-np.inf, np.float32))
        if "window.slots" not in g:
            total = g.node("Cast", ["total_sequence_length"], "window.total", to=7)
            g.node("Range", [zero, total, one], "window.slots")
            g.node("Unsqueeze", ["position_ids", axes], "window.positions")
        before = g.node("Sub", ["window.positions", size], f"window.{window}.before")
        far = g.node("LessOrEqual", ["window.slots", before], f"window.{window}.far")
        g.node("Where", [far, hidden, "attention_bias"], f"window.{window}.bias")

    def layer(self, layer: int, x: str, branch: str) -> tuple[str, str]:
        """One layer. The residual stream is ``x + branch``, before and after."""
        g, spec, at = self._graph, self._spec, f"layers.{layer}"
        normed, x = self._norm(
            f"{at}.attention_norm", x, branch, spec.name("attention_norm", layer)
        )
        query, key, value = self._qkv(layer, normed)
        mixed = self._attention(layer, query, key, value)
        branch = self._linear(f"{at}.o", mixed, layer, ("o",), spec.out_bias)
        normed, x = self._norm(f"{at}.mlp_norm", x, branch, spec.name("mlp_norm", layer))
        both = self._linear(f"{at}.gate_up", normed, layer, ("gate", "up"), spec.mlp_bias)
        gate, up = g.nodes("Split", [both], [f"{at}.gate", f"{at}.up"], axis=-1, num_outputs=2)
        # QuickGelu with alpha 1 is SiLU.
        active = g.node(MICROSOFT + "QuickGelu", [gate], f"{at}.silu", alpha=1.0)
        product = g.node("Mul", [active, up], f"{at}.gated")
        return x, self._linear(f"{at}.down", product, layer, ("down",), spec.mlp_bias)

    def head(self, x: str) -> None:
        """Logits of ``[r, hidden]``, and the best of each row."""
        g, spec = self._graph, self._spec
        mask = None
        if spec.vocab_used < spec.vocab_size:
            padding = np.zeros(spec.vocab_size, np.float32)
            padding[spec.vocab_used :] = -np.inf
            mask = g.constant("padding", padding)
        logits = self._store.head(x, "logits", spec.name("head"), mask)
        k = min(TOP_K, spec.vocab_size)
        count = g.constant("top_k", np.array([k], np.int64))
        g.nodes("TopK", [logits, count], ["top_logits", "top_ids"], axis=-1, largest=1, sorted=1)
        g.output("logits", np.float32, ("r", spec.vocab_size))
        g.output("top_logits", np.float32, ("r", k))
        g.output("top_ids", np.int64, ("r", k))

    def _norm(self, out: str, x: str, branch: str, weight: str) -> tuple[str, str]:
        """The RMS norm of ``x + branch``, and that sum."""
        g, epsilon = self._graph, self._spec.norm.epsilon
        scale = g.constant(weight, read(self._tensors, weight))
        if not branch:
            inputs = [x, scale]
            return g.node("SimplifiedLayerNormalization", inputs, out, axis=-1, epsilon=epsilon), x
        g.nodes(
            MICROSOFT + "SkipSimplifiedLayerNormalization",
            [x, branch, scale],
            [out, "", "", f"{out}.sum"],
            epsilon=epsilon,
        )
        return out, f"{out}.sum"

    def _linear(self, out: str, x: str, layer: int, roles: tuple[str, ...], bias: bool) -> str:
        spec = self._spec
        weights = [spec.name(role, layer) for role in roles]
        biases = [spec.name(f"{role}_bias", layer) for role in roles] if bias else []
        return self._store.linear(x, out, weights, biases)

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str]:
        """Query, key and value; all three in the first where nothing stands between."""
        g, spec, at = self._graph, self._spec, f"layers.{layer}"
        packed = self._linear(f"{at}.qkv", x, layer, ("q", "k", "v"), spec.qkv_bias)
        if not spec.qk_norm:
            return packed, "", ""
        sizes = g.constant(
            "qkv_sizes", np.array([spec.q_size, spec.kv_size, spec.kv_size], np.int64)
        )
        query, key, value = g.nodes(
            "Split", [packed, sizes], [f"{at}.q", f"{at}.k", f"{at}.v"], axis=-1
        )
        query = self._head_norm(query, spec.heads, spec.name("q_norm", layer))
        return query, self._head_norm(key, spec.kv_heads, spec.name("k_norm", layer)), value

    def _head_norm(self, x: str, heads: int, weight: str) -> str:
        g, width = self._graph, self._spec.head_dim
        split = g.node("Reshape", [x, self._dims(1, -1, heads, width)], f"{x}.heads")
        normed, _ = self._norm(f"{x}.norm", split, "", weight)
        return g.node("Reshape", [normed, self._dims(1, -1, heads * width)], f"{x}.normed")

    def _attention(self, layer: int, query: str, key: str, value: str) -> str:
        g, spec = self._graph, self._spec
        cache = (1, spec.kv_heads, "capacity", spec.head_dim)
        dtype = KV_TYPES[self._options.kv]
        past = [g.input(f"past_{part}_{layer}", dtype, cache) for part in ("key", "value")]
        present = [f"present_{part}_{layer}" for part in ("key", "value")]
        out = f"layers.{layer}.attention"
        scales, quantized = self._kv_scales(layer)
        window = spec.windows[layer]
        bias = f"window.{window}.bias" if window else "attention_bias"
        sizes = ["seqlens_k", "total_sequence_length", "cos", "sin"]
        g.nodes(
            MICROSOFT + "GroupQueryAttention",
            [query, key, value, *past, *sizes, "position_ids", bias, *scales],
            [out, *present],
            num_heads=spec.heads,
            kv_num_heads=spec.kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
            # In slots, so with room for a tree; the bias has the exact end.
            local_window_size=window + _TREE_SLOTS if window else -1,
            **quantized,
        )
        for name in present:
            g.output(name, dtype, cache)
        return out

    def _kv_scales(self, layer: int) -> tuple[list[str], dict[str, str | int]]:
        """Further inputs and attributes of attention over a cache in int8."""
        if self._options.kv == "fp32":
            return [], {}
        names = [f"layers.{layer}.{part}_scale" for part in ("key", "value")]
        for name, scale in zip(names, self._options.kv_scales[layer], strict=True):
            self._graph.constant(name, scale.reshape(self._spec.kv_heads, 1, -1))
        kinds = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        return ["", *names], {**kinds, "kv_cache_bit_width": 8}

    def _dims(self, *dims: int) -> str:
        return self._graph.constant(f"dims.{'x'.join(map(str, dims))}", np.array(dims, np.int64))
