"""Reads how the nodes of an ONNX graph are wired, without the onnx package.

Source of the field numbers: onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgedec.bundle.onnx_file import mapped
from edgedec.bundle.protobuf import Damaged, fields, marks
from edgedec.errors import BundleError

_GRAPH, _NODE, _INITIALIZER, _OUTPUT = 7, 1, 5, 12
_INPUTS, _OUTPUTS, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7
_NAME, _INT, _INNER, _INNERS = 1, 3, 6, 11
_DIMS, _DATA_TYPE, _TENSOR_NAME = 1, 2, 8
_VALUE_TYPE, _TENSOR_TYPE, _ELEMENT_TYPE, _SHAPE, _DIM, _DIM_VALUE = 2, 1, 1, 2, 1, 1
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
        numbers: numbers in its weights.

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
    content = mapped(path)
    try:
        return _wires(memoryview(content))
    except (Damaged, ValueError):
        raise BundleError(f"{path}: not an ONNX model, or damaged: get it again") from None


def _wires(model: memoryview) -> Wires:
    nodes: list[Node] = []
    outputs: dict[str, Value] = {}
    weights: dict[str, int] = {}
    for number, graph in fields(model):
        if number != _GRAPH or graph is None:
            continue
        for inner, value in fields(graph):
            if value is None:
                continue
            if inner == _NODE:
                nodes.append(_node(value))
            elif inner == _OUTPUT:
                outputs.update([_output(value)])
            elif inner == _INITIALIZER:
                weights.update([_weight(value)])
    numbers = sum(weights.values())
    for node in nodes:  # packed numbers are counted by their product; their scales are none
        if node.op == f"com.microsoft::{_PACKED}":
            numbers += node.sizes.get("K", 0) * node.sizes.get("N", 0)
            numbers -= sum(weights.get(name, 0) for name in node.inputs[1:])
    return Wires(tuple(nodes), outputs, numbers)


def _node(view: memoryview) -> Node:
    op = domain = ""
    inputs: list[str] = []
    outputs: list[str] = []
    sizes: dict[str, int] = {}
    inner = False
    for number, value in fields(view):
        if value is None:
            continue
        if number == _INPUTS:
            inputs.append(bytes(value).decode())
        elif number == _OUTPUTS:
            outputs.append(bytes(value).decode())
        elif number == _OP_TYPE:
            op = bytes(value).decode()
        elif number == _DOMAIN:
            domain = bytes(value).decode()
        elif number == _ATTRIBUTE:
            inner |= any(one in (_INNER, _INNERS) for one, _ in fields(value))
            sizes.update(_size(value))
    name = op if domain in ("", "ai.onnx") else f"{domain}::{op}"
    return Node(name, tuple(inputs), tuple(outputs), sizes, inner)


def _size(attribute: memoryview) -> dict[str, int]:
    name = next((bytes(v).decode() for n, v in fields(attribute) if n == _NAME and v), "")
    number = dict(_numbers(attribute)).get(_INT)
    return {} if number is None else {name: number}


def _output(view: memoryview) -> tuple[str, Value]:
    name, kind, dims = "", 0, []
    for number, value in fields(view):
        if number == _NAME and value is not None:
            name = bytes(value).decode()
        for tensor in _within(value, _TENSOR_TYPE) if number == _VALUE_TYPE and value else ():
            kind = dict(_numbers(tensor)).get(_ELEMENT_TYPE, 0)
            dims = [
                dict(_numbers(dim)).get(_DIM_VALUE)
                for shape in _within(tensor, _SHAPE)
                for dim in _within(shape, _DIM)
            ]
    return name, Value(kind, tuple(dims))


def _weight(view: memoryview) -> tuple[str, int]:
    """Return a weight's name and its numbers; of a vector or of packed ones none."""
    name, count, axes, kind = "", 1, 0, 0
    for number, value in fields(view):
        if number == _TENSOR_NAME and value is not None:
            name = bytes(value).decode()
        elif number == _DIMS and value is not None:  # packed, as proto3 writes them
            for size in _varints(value):
                count, axes = count * size, axes + 1
    for number, size in _numbers(view):
        if number == _DIMS:
            count, axes = count * size, axes + 1
        elif number == _DATA_TYPE:
            kind = size
    return name, count if axes > 1 and kind in _NUMBERS else 0


def _within(view: memoryview, number: int) -> Iterator[memoryview]:
    return (value for field, value in fields(view) if field == number and value is not None)


def _numbers(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the fields that are whole numbers."""
    for number, begin, start, end in marks(view):
        if start is None:
            tag_bytes = 1 if number < 16 else 2
            yield number, next(_varints(view[begin + tag_bytes : end]), 0)


def _varints(view: memoryview) -> Iterator[int]:
    value = shift = 0
    for byte in view:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0
