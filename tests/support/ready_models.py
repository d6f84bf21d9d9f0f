"""Decoders in ONNX as others export them, in three layouts, made of a Llama checkpoint.

The nodes are those that their builders write: RMSNorm and rotation as operators of com.microsoft,
``GroupQueryAttention`` that counts the mask, and products of packed numbers or plain ones.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

_MS = "com.microsoft"
_TEXTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass
class Layout:
    """How a graph is written.

    Attributes:
        attention: ``gqa``, or ``parts``: products and a softmax over a cache that is concatenated.
        bits: 32, 16 (weights, cache and logits in half precision) or 4.
        positions: take positions as an input.
        keep: take ``num_logits_to_keep``.
        last_only: return the logits of the last row alone.
        names: of the cache, of keys and values before and after a pass.
        open_width: leave the width of caches open, as recent builders of onnxruntime-genai do.
        together: scale the rows of a pass by their largest number, as dynamic quantisation does.

    """

    attention: str = "gqa"
    bits: int = 32
    positions: bool = False
    keep: bool = False
    last_only: bool = False
    names: tuple[str, str] = ("past_key_values.{}.{}", "present.{}.{}")
    open_width: bool = False
    together: bool = False


class Writer:
    """Builds a graph node by node."""

    def __init__(self, source: Path, layout: Layout) -> None:
        self.config = json.loads((source / "config.json").read_text("utf-8"))
        self.tensors = {
            name: values.astype(np.float32)
            for name, values in load_file(source / "model.safetensors").items()
        }
        self.layout = layout
        self.kind = np.float16 if layout.bits == 16 else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def op(
        self, kind: str, *inputs: str, out: int | list[str] = 1, domain: str = "", **facts: Any
    ) -> str:
        names = [f"v{len(self.nodes)}_{n}" for n in range(out)] if isinstance(out, int) else out
        node = helper.make_node(kind, list(inputs), names, domain=domain, **facts)
        self.nodes.append(node)
        return names[0]

    def put(self, values: npt.ArrayLike, kind: Any = np.int64) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(values, kind), name)
        return name

    def product(self, x: str, name: str) -> str:
        weight = self.tensors[name]
        if self.layout.bits == 4:
            return self._packed(x, weight)
        if self.layout.together:
            x = self._rounded(x)
        return self.op("MatMul", x, self.put(weight.T, self.kind))

    def _rounded(self, x: str) -> str:
        """Round a pass's rows to int8 by one scale, as DynamicQuantizeLinear does."""
        names = [f"q{len(self.nodes)}", f"s{len(self.nodes)}", f"z{len(self.nodes)}"]
        self.op("DynamicQuantizeLinear", x, out=names)
        return self.op("DequantizeLinear", *names)

    def _packed(self, x: str, weight: npt.NDArray[np.float32], block: int = 32) -> str:
        rows, columns = weight.shape
        blocks = weight.reshape(rows, columns // block, block)
        scales = np.abs(blocks).max(2, keepdims=True) / 7
        scales[scales == 0] = 1
        numbers = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
        pairs = numbers[..., ::2] | numbers[..., 1::2] << 4
        return self.op(
            "MatMulNBits", x, self.put(pairs, np.uint8), self.put(scales.reshape(-1), self.kind),
            domain=_MS, K=columns, N=rows, bits=4, block_size=block, accuracy_level=4,
        )  # fmt: skip

    def norm(self, x: str, name: str) -> str:
        return self.op(
            "SimplifiedLayerNormalization", x, self.put(self.tensors[name], self.kind),
            axis=-1, epsilon=self.config["rms_norm_eps"], stash_type=1,
        )  # fmt: skip


class Decoder(Writer):
    """A Llama."""

    def build(self) -> onnx.ModelProto:
        config, layout = self.config, self.layout
        self._tables()
        self._lengths()
        embedding = self.tensors["model.embed_tokens.weight"]
        x = self.op("Gather", self.put(embedding, self.kind), "input_ids")
        for layer in range(config["num_hidden_layers"]):
            x = self._layer(x, layer)
        x = self.norm(x, "model.norm.weight")
        if layout.last_only:
            x = self.op("Slice", x, self.put([-1]), self.put([1 << 40]), self.put([1]))
        elif layout.keep:
            first = self.op("Unsqueeze", self.op("Neg", "num_logits_to_keep"), self.put([0]))
            x = self.op("Slice", x, first, self.put([1 << 40]), self.put([1]))
        if "lm_head.weight" not in self.tensors:
            self.tensors["lm_head.weight"] = embedding
        logits = self.product(x, "lm_head.weight")
        self.op("Identity", logits, out=["logits"])
        return self._model()

    @property
    def _width(self) -> int:
        return int(self.config.get("head_dim") or self.config["hidden_size"] // self._heads)

    @property
    def _heads(self) -> int:
        return int(self.config["num_attention_heads"])

    @property
    def _kv(self) -> int:
        return int(self.config["num_key_value_heads"])

    def _tables(self) -> None:
        most, width = self.config["max_position_embeddings"], self._width
        turns = self.config["rope_theta"] ** (-np.arange(0, width, 2) / width)
        angles = np.outer(np.arange(most), turns)
        self.cos, self.sin = (self.put(f(angles), self.kind) for f in (np.cos, np.sin))

    def _lengths(self) -> None:
        """Count the mask, as the builder of onnxruntime-genai does."""
        seen = self.op("ReduceSum", "attention_mask", self.put([1]))
        before = self.op("Sub", seen, self.put([1]))
        self.seqlens = self.op("Cast", before, to=TensorProto.INT32)
        total = self.op("Gather", self.op("Shape", "attention_mask"), self.put(1), axis=0)
        self.total = self.op("Cast", total, to=TensorProto.INT32)
        if self.layout.attention == "parts":
            count = self.op("Gather", self.op("Shape", "input_ids"), self.put(1), axis=0)
            own = self.op("Range", self.op("Sub", total, count), total, self.put(1))
            rows = self.op("Unsqueeze", own, self.put([1]))
            later = self.op("Greater", self.op("Range", self.put(0), total, self.put(1)), rows)
            number = self.op("Cast", later, to=helper.np_dtype_to_tensor_dtype(np.dtype(self.kind)))
            self.hidden = self.op("Mul", number, self.put(-1e4, self.kind))
            self.places = "position_ids" if self.layout.positions else own

    def _layer(self, x: str, layer: int) -> str:
        place = f"model.layers.{layer}"
        normed = self.norm(x, f"{place}.input_layernorm.weight")
        q, k, v = (self.product(normed, f"{place}.self_attn.{one}_proj.weight") for one in "qkv")
        attend = self._fused if self.layout.attention == "gqa" else self._in_parts
        x = self.op(
            "Add", x, self.product(attend(q, k, v, layer), f"{place}.self_attn.o_proj.weight")
        )
        normed = self.norm(x, f"{place}.post_attention_layernorm.weight")
        gate = self.product(normed, f"{place}.mlp.gate_proj.weight")
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        wide = self.op("Mul", gate, self.product(normed, f"{place}.mlp.up_proj.weight"))
        return self.op("Add", x, self.product(wide, f"{place}.mlp.down_proj.weight"))

    def _caches(self, layer: int) -> list[list[str]]:
        return [
            [name.format(layer, part) for part in ("key", "value")] for name in self.layout.names
        ]

    def _fused(self, q: str, k: str, v: str, layer: int) -> str:
        pasts, presents = self._caches(layer)
        return self.op(
            "GroupQueryAttention", q, k, v, *pasts, self.seqlens, self.total, self.cos, self.sin,
            out=[f"attention{layer}", *presents], domain=_MS, do_rotary=1,
            num_heads=self._heads, kv_num_heads=self._kv,
        )  # fmt: skip

    def _in_parts(self, q: str, k: str, v: str, layer: int) -> str:
        pasts, presents = self._caches(layer)
        q, k, v = (
            self.op("Transpose", self.op("Reshape", one, self.put([0, 0, heads, self._width])),
                    perm=[0, 2, 1, 3])
            for one, heads in ((q, self._heads), (k, self._kv), (v, self._kv))
        )  # fmt: skip
        q, k = (self._turned(one) for one in (q, k))
        sides = []
        for past, own, present in zip(pasts, (k, v), presents, strict=True):
            self.op("Concat", past, own, out=[present], axis=2)
            wide = self.op("Unsqueeze", present, self.put([2]))
            wide = self.op("Expand", wide, self.put([1, 1, self._heads // self._kv, 1, 1]))
            sides.append(self.op("Reshape", wide, self.put([0, self._heads, -1, self._width])))
        scores = self.op("MatMul", q, self.op("Transpose", sides[0], perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.put(self._width**-0.5, self.kind))
        shares = self.op("Softmax", self.op("Add", scores, self.hidden), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, sides[1]), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.put([0, 0, self._heads * self._width]))

    def _turned(self, x: str) -> str:
        cos, sin = (self.op("Gather", table, self.places) for table in (self.cos, self.sin))
        half = self._width // 2
        low = self.op("Slice", x, self.put([0]), self.put([half]), self.put([3]))
        high = self.op("Slice", x, self.put([half]), self.put([2 * half]), self.put([3]))
        first = self.op("Sub", self.op("Mul", low, cos), self.op("Mul", high, sin))
        second = self.op("Add", self.op("Mul", high, cos), self.op("Mul", low, sin))
        return self.op("Concat", first, second, axis=3)

    def _model(self) -> onnx.ModelProto:
        real = helper.np_dtype_to_tensor_dtype(np.dtype(self.kind))
        ids = TensorProto.INT64

        def info(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, kind, shape)

        inputs = [
            info("input_ids", ids, "batch", "n"), info("attention_mask", ids, "batch", "total"),
        ]  # fmt: skip
        inputs += [info("position_ids", ids, "batch", "n")] * self.layout.positions
        inputs += [info("num_logits_to_keep", ids)] * self.layout.keep
        rows: int | str = 1 if self.layout.last_only else "n"
        outputs = [info("logits", real, "batch", rows, self.config["vocab_size"])]
        for layer in range(self.config["num_hidden_layers"]):
            for places, names, axis in zip(
                (inputs, outputs), self._caches(layer), ("past", "total"), strict=True
            ):
                width = "kv_cache_dim" if self.layout.open_width else self._width
                places += [info(one, real, "batch", self._kv, axis, width) for one in names]
        graph = helper.make_graph(
            self.nodes, "decoder", inputs, outputs, list(self.weights.values())
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_graph(source: Path, file: Path, layout: Layout, data: str) -> None:
    """Write a graph of a checkpoint, its weights in a file beside it."""
    model = Decoder(source, layout).build()
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, file, save_as_external_data=True, location=data, size_threshold=1024)


def transformers_js(source: Path, folder: Path, **layouts: Layout) -> Path:
    """Write the layout of transformers.js: a graph for each suffix; ``fp32`` has none."""
    _texts(source, folder)
    for label, layout in (layouts or {"fp32": Layout()}).items():
        name = "model.onnx" if label == "fp32" else f"model_{label}.onnx"
        write_graph(source, folder / "onnx" / name, layout, f"{name}_data")
    return folder


def optimum(source: Path, folder: Path, layout: Layout | None = None) -> Path:
    """Write the layout of optimum: one graph beside the configuration."""
    _texts(source, folder)
    layout = layout or Layout("parts", positions=True)
    write_graph(source, folder / "model.onnx", layout, "model.onnx_data")
    return folder


def genai(
    source: Path, folder: Path, layout: Layout | None = None,
    change: Callable[[dict[str, Any]], object] = lambda config: None,
) -> Path:  # fmt: skip
    """Write the layout of onnxruntime-genai: genai_config.json, and no config.json."""
    _texts(source, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for name in ("config.json", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    layout = dataclasses.replace(layout or Layout(bits=4), open_width=True)
    write_graph(source, folder / "model.onnx", layout, "model.onnx.data")
    pasts, presents = (
        {part: name.format("%d", part) for part in ("key", "value")} for name in layout.names
    )
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": config["head_dim"],
        "hidden_size": config["hidden_size"],
        "inputs": {
            "input_ids": "input_ids", "attention_mask": "attention_mask",
            "past_key_names": pasts["key"], "past_value_names": pasts["value"],
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": presents["key"], "present_value_names": presents["value"],
        },
        "num_attention_heads": config["num_attention_heads"],
        "num_hidden_layers": config["num_hidden_layers"],
        "num_key_value_heads": config["num_key_value_heads"],
    }  # fmt: skip
    made = {
        "model": {
            "bos_token_id": 1, "eos_token_id": config["eos_token_id"],
            "pad_token_id": config["eos_token_id"], "type": config["model_type"],
            "context_length": config["max_position_embeddings"],
            "vocab_size": config["vocab_size"], "decoder": decoder,
        },
        "search": {"do_sample": False, "max_length": 256, "past_present_share_buffer": True},
    }  # fmt: skip
    change(made)
    (folder / "genai_config.json").write_text(json.dumps(made, indent=1), "utf-8")
    return folder


def _texts(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TEXTS:
        if (source / name).exists():
            shutil.copy(source / name, folder / name)
