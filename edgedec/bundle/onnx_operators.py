"""Lists the operators of an ONNX file, without the onnx package."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.files import open_regular
from edgedec.bundle.protobuf import Damaged, fields, marks
from edgedec.errors import BundleError

# Fields of onnx.proto3: from a model to its nodes, and of a node and its attributes.
_GRAPH, _FUNCTION, _GRAPH_NODE, _FUNCTION_NODE = 7, 25, 1, 7
_OP_TYPE, _DOMAIN, _ATTRIBUTE = 4, 7, 5
_NAME, _INT, _INNER, _INNERS = 1, 3, 6, 11
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as a graph uses it.

    Attributes:
        name: with its domain in front, ``com.microsoft::MatMulNBits``, unless that is ONNX's own.
        bits: the width of stored numbers, of attributes that state one; 0 if none does.

    """

    name: str
    bits: int


_BITS = (b"bits", b"expert_weight_bits", b"kv_cache_bit_width")


def operators(path: Path) -> set[Operator]:
    """Return the operators of a file's graph; BundleError if it is missing or damaged."""
    try:
        with open_regular(path) as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        reason = getattr(error, "strerror", None) or "the file is empty"
        raise BundleError(f"{path}: cannot be read: {reason}") from error
    found: set[Operator] = set()
    try:
        for number, value in fields(memoryview(content)):
            if value is not None and number in (_GRAPH, _FUNCTION):
                node = _GRAPH_NODE if number == _GRAPH else _FUNCTION_NODE
                _nodes(value, node, found, 0)
    except (Damaged, ValueError):
        message = f"{path}: not an ONNX model, or damaged: export it again"
        raise BundleError(message) from None  # the cause would keep the file mapped
    return found


def _nodes(view: memoryview, node: int, found: set[Operator], depth: int) -> None:
    """Add the operators of a graph or function, and of the graphs inside its nodes."""
    if depth > _MAX_DEPTH:
        raise Damaged
    for number, value in fields(view):
        if number == node and value is not None:
            found.add(_operator(value, found, depth))


def _operator(view: memoryview, found: set[Operator], depth: int) -> Operator:
    name = domain = ""
    bits = 0
    for number, value in fields(view):
        if value is None:
            continue
        if number == _OP_TYPE:
            name = bytes(value).decode()
        elif number == _DOMAIN:
            domain = bytes(value).decode()
        elif number == _ATTRIBUTE:
            bits = max(bits, _bits(value))
            for inner, graph in fields(value):
                if inner in (_INNER, _INNERS) and graph is not None:
                    _nodes(graph, _GRAPH_NODE, found, depth + 1)
    plain = domain in ("", "ai.onnx")
    return Operator(name if plain else f"{domain}::{name}", bits)


def _bits(attribute: memoryview) -> int:
    """Return an attribute's number if it states a width of bits, else 0."""
    name, number = b"", 0
    for field, begin, start, end in marks(attribute):
        if field == _NAME and start is not None:
            name = bytes(attribute[start:end])
        elif field == _INT and start is None:
            number = _varint(attribute[begin + 1 : end])
    return number if name in _BITS else 0


def _varint(view: memoryview) -> int:
    """Return an unsigned number; a negative one of protobuf is a large one here."""
    return sum((byte & 127) << 7 * place for place, byte in enumerate(view))
