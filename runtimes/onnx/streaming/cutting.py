"""Splits a graph into blocks, without the onnx package.

Nodes and initializers are copied unchanged; only lists of inputs and outputs are new. A block
begins at the start of a layer, at its residual stream (``layers.3.stream``, which is before the MLP
in most models), and at the head. A value that crosses a boundary is an output of one block and an
input of later ones, so the graph may be split anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgedec.bundle.protobuf import Damaged, fields, message, spans
from edgedec.errors import BundleError

# Field numbers, from onnx.proto3.
_GRAPH = 7
_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_ATTRIBUTE = 1, 2, 5
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 8, 1, 2
_STREAM = re.compile(r"layers\.\d+\.stream")
_PART = re.compile(r"layers\.\d+(?=\.)|final(?=\.|$)")


@dataclass(slots=True)
class _Node:
    data: memoryview
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    """Nodes that are computed together.

    Attributes:
        inputs: inputs of the graph and outputs of earlier blocks that it reads.
        outputs: outputs of the graph, and values that later blocks read.

    """

    nodes: list[_Node]
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class CutGraph:
    """A model's graph in blocks.

    Args:
        model: a serialised ModelProto, whose large weights are external.
        where: the file, for messages.

    Attributes:
        blocks: in the order in which they are computed.

    Raises:
        BundleError: not a model, or it has subgraphs, which cannot be split.

    """

    def __init__(self, model: bytes, where: str) -> None:
        self._nodes: list[_Node] = []
        self._initializers: dict[str, memoryview] = {}
        self._values: dict[str, memoryview] = {}
        self._outputs: list[str] = []
        self._header: list[memoryview] = []
        try:
            for number, value, span in spans(memoryview(model)):
                if number == _GRAPH and value is not None:
                    self._read_graph(value)
                else:
                    self._header.append(span)
        except (Damaged, ValueError):
            raise BundleError(f"{where}: not an ONNX model, or damaged: export it again") from None
        if not self._nodes:
            raise BundleError(f"{where}: its graph cannot be cut into blocks: export it again")
        self.blocks = self._cut()

    def serialised(self, block: Block, types: Mapping[str, bytes]) -> bytes:
        """Return a block as a ModelProto.

        Args:
            block: one of ``blocks``.
            types: TypeProtos of values that earlier blocks compute.

        """
        used = {name for node in block.nodes for name in node.inputs}
        parts: list[tuple[int, bytes | memoryview | str]] = [
            *((_NODE, node.data) for node in block.nodes),
            (2, "block"),
            *((_INITIALIZER, data) for name, data in self._initializers.items() if name in used),
            *((_INPUT, self._value(name, types)) for name in block.inputs),
            *((_OUTPUT, self._value(name, types)) for name in block.outputs),
        ]
        return b"".join([*self._header, message((_GRAPH, message(*parts)))])

    def _value(self, name: str, types: Mapping[str, bytes]) -> bytes | memoryview:
        """Return a ValueInfoProto; ONNX Runtime infers the type of a block's own output."""
        if name in self._values:
            return self._values[name]
        typed = ((_VALUE_TYPE, types[name]),) if name in types else ()
        return message((_VALUE_NAME, name), *typed)

    def _read_graph(self, graph: memoryview) -> None:
        for number, value in fields(graph):
            if value is None:
                continue
            if number == _NODE:
                self._nodes.append(_read_node(value))
            elif number == _INITIALIZER:
                self._initializers[_text(value, _TENSOR_NAME)] = value
            elif number in (_INPUT, _OUTPUT):
                name = _text(value, _VALUE_NAME)
                self._values[name] = value
                if number == _OUTPUT:
                    self._outputs.append(name)

    def _cut(self) -> list[Block]:
        blocks = [Block(nodes) for nodes in self._groups()]
        wanted = set(self._outputs)
        for block in reversed(blocks):
            made = [name for node in block.nodes for name in node.outputs]
            block.outputs = [name for name in made if name in wanted]
            read = dict.fromkeys(name for node in block.nodes for name in node.inputs)
            own = {*made, *self._initializers, ""}
            block.inputs = [name for name in read if name not in own]
            wanted.update(block.inputs)
        # Inputs that no node reads, such as positions of a model without any.
        blocks[0].inputs += [name for name in self._values if name not in wanted]
        return blocks

    def _groups(self) -> list[list[_Node]]:
        groups: list[list[_Node]] = [[]]
        layer = part = ""
        for node in self._nodes:
            name = _begins(node, layer)
            # Nodes before the first layer, such as the embedding, belong to its block.
            if name and name != part and part:
                groups.append([])
            part = name or part
            layer = part.rpartition(".stream")[0] or part
            groups[-1].append(node)
        return groups


def _begins(node: _Node, layer: str) -> str:
    """Return the part of the model that begins at a node, such as ``layers.3``; else empty."""
    for name in node.outputs:
        if _STREAM.fullmatch(name):
            return name
    found = _PART.match(node.outputs[0])
    return found[0] if found and found[0] != layer else ""


def _read_node(data: memoryview) -> _Node:
    node = _Node(data)
    for number, value in fields(data):
        if value is None:
            continue
        if number == _NODE_INPUT:
            node.inputs.append(str(value, "utf-8"))
        elif number == _NODE_OUTPUT:
            node.outputs.append(str(value, "utf-8"))
        elif number == _NODE_ATTRIBUTE and any(n in _ATTRIBUTE_GRAPHS for n, _ in fields(value)):
            raise Damaged  # a subgraph may read values that this reader does not see
    if not node.outputs:
        raise Damaged
    return node


def _text(data: memoryview, wanted: int) -> str:
    return next((str(v, "utf-8") for n, v in fields(data) if n == wanted and v is not None), "")
