"""Reads how the nodes of an ONNX graph are wired, without the onnx package.

Source of the field numbers: onnx.proto3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.bundle.messages import Message, Messages
from edgedec.bundle.onnx_file import mapped
from edgedec.bundle.protobuf import Damaged
from edgedec.errors import BundleError

_MESSAGES = Messages(
    {
        "Model": {"graph": (7, "*Graph"), "functions": (25, "*Function")},
        "Graph": {
            "node": (1, "*Node"),
            "initializer": (5, "*Tensor"),
            "output": (12, "*ValueInfo"),
        },
        "Function": {"node": (7, "*Node")},
        "Node": {
            "input": (1, "*str"),
            "output": (2, "*str"),
            "op_type": (4, "str"),
            "attribute": (5, "*Attribute"),
            "domain": (7, "str"),
        },
        "Attribute": {
            "name": (1, "str"),
            "i": (3, "int"),
            "g": (6, "*Graph"),
            "graphs": (11, "*Graph"),
        },
        "Tensor": {"dims": (1, "ints"), "data_type": (2, "int"), "name": (8, "str")},
        "ValueInfo": {"name": (1, "str"), "type": (2, "Type")},
        "Type": {"tensor_type": (1, "TensorType")},
        "TensorType": {"elem_type": (1, "int"), "shape": (2, "Shape")},
        "Shape": {"dim": (1, "*Dim")},
        "Dim": {"dim_value": (1, "int")},
    }
)
# Attributes that state the width of stored numbers.
_BITS = ("bits", "expert_weight_bits", "kv_cache_bit_width")
# Types of weights whose elements are numbers of a model, not packed ones: float, int8, fp16, bf16.
_NUMBERS = (1, 3, 10, 16)
_PACKED = "MatMulNBits"
_ATTENTION = "GroupQueryAttention"
# Where that operator takes the keys and values before a pass.
_PASTS = (3, 4)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with the names of what it reads and writes.

    Attributes:
        op: its name, with the domain in front unless that is ONNX's own.
        inputs, outputs: names; empty for one that is left out.
        sizes: its whole numbers by name.
        inner: whether it contains graphs.

    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]
    inner: bool


@dataclass(frozen=True, slots=True)
class Value:
    """An output of a graph.

    Attributes:
        kind: of its elements, as ONNX numbers types.
        dims: its dimensions, None for one that is not fixed.

    """

    kind: int
    dims: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Wires:
    """A graph's nodes.

    Attributes:
        nodes: in the order of the file.
        outputs: the graph's outputs.

    """

    nodes: tuple[Node, ...]
    outputs: Mapping[str, Value]
    numbers: int

    def shares(self, pasts: Mapping[str, str]) -> bool:
        """Return whether every cache is read by an attention alone that can write into it.

        Such a graph takes one buffer as past and as present, since lengths come from elsewhere.

        Args:
            pasts: the output that each cache becomes.

        """
        found = set()
        for node in self.nodes:
            if node.inner:
                return False
            for place, name in enumerate(node.inputs):
                if name not in pasts:
                    continue
                own = node.op == f"com.microsoft::{_ATTENTION}" and place in _PASTS
                if not own or name in found or node.outputs[place - 2 :][:1] != (pasts[name],):
                    return False
                found.add(name)
        return found == pasts.keys()


def read_wires(path: Path) -> Wires:
    """Read a graph's nodes; BundleError if the file is missing or damaged."""
    graphs = _read(path).get("graph", ())
    nodes = [_node(one) for graph in graphs for one in graph.get("node", ())]
    outputs = dict(_output(one) for graph in graphs for one in graph.get("output", ()))
    weights = dict(_weight(one) for graph in graphs for one in graph.get("initializer", ()))
    numbers = sum(weights.values())
    for node in nodes:  # packed numbers are counted by their product; their scales are none
        if node.op == f"com.microsoft::{_PACKED}":
            numbers += node.sizes.get("K", 0) * node.sizes.get("N", 0)
            numbers -= sum(weights.get(name, 0) for name in node.inputs[1:])
    return Wires(tuple(nodes), outputs, numbers)


def operators(path: Path) -> set[tuple[str, int]]:
    """Return the operators of a file: their names, and the bits that an attribute states or 0.

    Those of functions and of graphs inside nodes are among them.

    Raises:
        BundleError: the file is missing or damaged.

    """
    model = _read(path)
    return {
        (_operator(node), max(map(_bits, node.get("attribute", ())), default=0))
        for graph in (*model.get("graph", ()), *model.get("functions", ()))
        for node in _nodes(graph)
    }


def _read(path: Path) -> Message:
    content = mapped(path)
    try:
        return _MESSAGES.decode("Model", memoryview(content))
    except (Damaged, ValueError):
        message = f"{path}: not an ONNX model, or damaged: get it again"
        raise BundleError(message) from None  # the cause would keep the file mapped


def _nodes(graph: Message) -> Iterator[Message]:
    """Yield the nodes of a graph, and of the graphs inside them."""
    for node in graph.get("node", ()):
        yield node
        for one in node.get("attribute", ()):
            for inner in (*one.get("g", ()), *one.get("graphs", ())):
                yield from _nodes(inner)


def _operator(node: Message) -> str:
    domain, op = node.get("domain", ""), str(node.get("op_type", ""))
    return op if domain in ("", "ai.onnx") else f"{domain}::{op}"


def _bits(attribute: Message) -> int:
    return int(attribute.get("i", 0)) if attribute.get("name") in _BITS else 0


def _node(node: Message) -> Node:
    attributes = node.get("attribute", ())
    return Node(
        _operator(node),
        tuple(node.get("input", ())),
        tuple(node.get("output", ())),
        {one.get("name", ""): one["i"] for one in attributes if "i" in one},
        any("g" in one or "graphs" in one for one in attributes),
    )


def _output(info: Message) -> tuple[str, Value]:
    tensor: Mapping[str, Any] = info.get("type", {}).get("tensor_type", {})
    dims = tensor.get("shape", {}).get("dim", ())
    return info.get("name", ""), Value(
        tensor.get("elem_type", 0), tuple(dim.get("dim_value") for dim in dims)
    )


def _weight(tensor: Message) -> tuple[str, int]:
    """Return a weight's name and its numbers; of a vector or of packed ones none."""
    dims = tensor.get("dims", ())
    counts = len(dims) > 1 and tensor.get("data_type") in _NUMBERS
    return tensor.get("name", ""), math.prod(dims) if counts else 0
