"""A tiny random decoder whose graph hands its cache back, built node by node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCAB, HIDDEN, LAYERS, HEADS, CONTEXT = 96, 32, 2, 4, 256


class _Builder:
    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def constant(self, values: npt.ArrayLike, kind: Any = np.int64) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        values = self.rng.standard_normal(shape) * scale / np.sqrt(shape[0])
        return self.constant(values, np.float32)

    def heads(self, x: str, width: int) -> str:
        """``[1, n, HIDDEN]`` to ``[1, HEADS, n, width]``."""
        flat = self.op("MatMul", x, self.weight(HIDDEN, HEADS * width, scale=0.8))
        split = self.op("Reshape", flat, self.constant([1, -1, HEADS, width]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, x: str, layer: int, seen: str, key: int, value: int) -> str:
        """``seen`` is 0 or a large negative number, ``[n, total]``."""
        sides = []
        for part, width in (("key", key), ("value", value)):
            past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
            sides.append(self.op("Concat", past, self.heads(x, width), out=present, axis=2))
        turned = self.op("Transpose", sides[0], perm=[0, 1, 3, 2])
        scores = self.op("Add", self.op("MatMul", self.heads(x, key), turned), seen)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), sides[1])
        rows = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.op("Reshape", rows, self.constant([1, -1, HEADS * value]))
        return self.op("MatMul", flat, self.weight(HEADS * value, HIDDEN, scale=2))


def write_tiny_graph(
    folder: Path, *, seed: int = 0, positions: bool = True, key: int = 8, value: int = 8
) -> Path:
    """``optimum.onnx`` with its weights beside it.

    Args:
        folder: must exist.
        seed: of the weights.
        positions: take positions as an input; else count the attention mask.
        key, value: numbers a head keeps of a token.

    """
    b = _Builder(seed)
    total = b.op("Squeeze", b.op("Shape", "attention_mask", start=1))
    count = b.op("Squeeze", b.op("Shape", "input_ids", start=1))
    own = b.op("Range", b.op("Sub", total, count), total, b.constant(1))
    places = "position_ids" if positions else own
    columns = b.op("Range", b.constant(0), total, b.constant(1))
    rows = b.op("Unsqueeze", own, b.constant([1]))
    later = b.op("Cast", b.op("Greater", columns, rows), to=TensorProto.FLOAT)
    masked = b.op("Cast", b.op("Equal", "attention_mask", b.constant(0)), to=TensorProto.FLOAT)
    seen = b.op("Mul", b.op("Add", later, masked), b.constant(-1e9, np.float32))
    words = b.op("Gather", b.weight(VOCAB, HIDDEN, scale=8), "input_ids")
    x = b.op("Add", words, b.op("Gather", b.weight(CONTEXT, HIDDEN, scale=10), places))
    for layer in range(LAYERS):
        x = b.op("Add", x, b.attention(x, layer, seen, key, value))
        wide = b.op("Tanh", b.op("MatMul", x, b.weight(HIDDEN, 64)))
        x = b.op("Add", x, b.op("MatMul", wide, b.weight(64, HIDDEN)))
    b.op("MatMul", x, b.weight(HIDDEN, VOCAB), out="logits")
    _save(folder, b, positions, {"key": key, "value": value})
    return folder


def _save(folder: Path, b: _Builder, positions: bool, widths: dict[str, int]) -> None:
    def info(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    ids, real = TensorProto.INT64, TensorProto.FLOAT
    inputs = [info("input_ids", ids, "batch", "n"), info("attention_mask", ids, "batch", "total")]
    inputs += [info("position_ids", ids, "batch", "n")] * positions
    outputs = [info("logits", real, "batch", "n", VOCAB)]
    for layer in range(LAYERS):
        for part, width in widths.items():
            name, shape = f"{layer}.{part}", ("batch", HEADS)
            inputs.append(info(f"past_key_values.{name}", real, *shape, "past", width))
            outputs.append(info(f"present.{name}", real, *shape, "total", width))
    graph = helper.make_graph(b.nodes, "tiny", inputs, outputs, b.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    facts = {
        "graph_version": 1,
        "style": "optimum",
        "name": "tiny",
        "vocab_size": VOCAB,
        "max_context": CONTEXT,
        "eos_ids": [0],
    }
    model.metadata_props.add(key="edgedec", value=json.dumps(facts))
    onnx.save_model(
        model,
        folder / "optimum.onnx",
        save_as_external_data=True,
        location="optimum.onnx.data",
        size_threshold=256,
    )
