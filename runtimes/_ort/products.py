"""ONNX graphs of products alone, for measuring, written without the onnx package.

A graph is a chain of square matrices: see ``hardware.speed``. So that hardly anything travels
between host and device, its rows are made there, as ``column x``, and come back as one, ``y =
row (column x) W1 W2 ... Wn``. All shapes are fixed, since neural processors know no others. A
message of the protobuf wire format is a sequence of fields; their numbers are from onnx.proto3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edgedec.hardware.speed import INT4_SCALE, SIDE, float_matrix, int4_matrix, one_row

_BLOCK = 32
_IR_VERSION, _OPSET = 8, 17
_MICROSOFT = "com.microsoft"
_KINDS = {"float32": 1, "uint8": 2, "float16": 10}  # TensorProto.DataType
_INT_ATTRIBUTE = 2  # AttributeProto.AttributeType
_EXTERNAL = 1  # TensorProto.DataLocation

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Chain:
    """A graph, what its weights are, and what it is fed with.

    Attributes:
        model: the serialised ModelProto; its weights are external.
        weights: by name; every matrix of the chain is an array of its own.
        feeds: ``x`` [1, SIDE], ``column`` [rows, 1] and ``row`` [1, rows].
        expected: ``y`` [1, SIDE], by numpy.
        operations: of a run, multiplications and additions.

    """

    model: bytes
    weights: dict[str, Array]
    feeds: dict[str, Array]
    expected: NDArray[np.float32]
    operations: int

    @property
    def weight_bytes(self) -> int:
        """Of all matrices."""
        return sum(values.nbytes for values in self.weights.values())


def float_chain(count: int, rows: int, dtype: DTypeLike = np.float32) -> Chain:
    """``count`` matrices of float32 or float16."""
    weight = float_matrix().astype(dtype)
    return _chain("MatMul", count, rows, {"w": weight}, weight)


def int4_chain(count: int, rows: int, dtype: DTypeLike = np.float32) -> Chain:
    """``count`` matrices of 4 bits with a scale for each block, computed as exports have it."""
    drawn = int4_matrix()
    codes = (drawn[:, ::2] | drawn[:, 1::2] << 4).reshape(SIDE, SIDE // _BLOCK, _BLOCK // 2)
    scales = np.full(SIDE * SIDE // _BLOCK, INT4_SCALE, dtype)
    weight = ((drawn.astype(np.float32) - 8) * np.float32(scales[0])).T
    attributes = {"K": SIDE, "N": SIDE, "bits": 4, "block_size": _BLOCK, "accuracy_level": 4}
    return _chain("MatMulNBits", count, rows, {"w": codes, "s": scales}, weight, attributes)


def _chain(
    op: str,
    count: int,
    rows: int,
    parts: dict[str, Array],
    weight: NDArray[np.floating],
    attributes: dict[str, int] | None = None,
) -> Chain:
    """The graph; ``weight`` is what ``parts`` stand for, and keeps lengths."""
    dtype = next(reversed(parts.values())).dtype  # of scales, or of the weights themselves
    nodes = [_node("MatMul", ["column", "x"], "h0", {})]
    tensors, weights = [], {}
    for number in range(count):
        names = [f"{part}{number}" for part in parts]
        for name, values in zip(names, parts.values(), strict=True):
            weights[name] = values.copy()
            tensors.append(_tensor(name, values))
        nodes.append(_node(op, [f"h{number}", *names], f"h{number + 1}", attributes or {}))
    nodes.append(_node("MatMul", ["row", f"h{count}"], "y", {}))
    feeds = _feeds(rows, dtype)
    expected, factor = feeds["x"].astype(np.float32), weight.astype(np.float32)
    for _ in range(count):
        expected = expected @ factor
    graph = [*(_bytes(1, node) for node in nodes), _text(2, "products")]
    graph += [_bytes(5, tensor) for tensor in tensors]
    graph += [_bytes(11, _value(name, values)) for name, values in feeds.items()]
    graph.append(_bytes(12, _value("y", feeds["x"])))
    model = [_integer(1, _IR_VERSION), _bytes(7, b"".join(graph)), _opset("", _OPSET)]
    if attributes:
        model.append(_opset(_MICROSOFT, 1))
    return Chain(b"".join(model), weights, feeds, expected, 2 * rows * SIDE * SIDE * count)


def _feeds(rows: int, dtype: DTypeLike) -> dict[str, Array]:
    """Rows that differ in sign, and the share of each in the one that comes back."""
    signs = np.where(np.arange(rows) % 2, -1.0, 1.0)
    return {
        "x": one_row().astype(dtype),
        "column": signs[:, None].astype(dtype),
        "row": (signs / rows)[None].astype(dtype),
    }


# -- messages -----------------------------------------------------------------------------------


def _node(op: str, inputs: list[str], output: str, attributes: dict[str, int]) -> bytes:
    fields = [_text(1, name) for name in inputs]
    fields += [_text(2, output), _text(4, op)]
    for name, value in attributes.items():
        attribute = _text(1, name) + _integer(3, value) + _integer(20, _INT_ATTRIBUTE)
        fields.append(_bytes(5, attribute))
    if attributes:
        fields.append(_text(7, _MICROSOFT))
    return b"".join(fields)


def _tensor(name: str, values: Array) -> bytes:
    """One whose data are handed over beside the model, which must say that they are elsewhere."""
    location = _text(1, "location") + _text(2, "memory")
    dims = b"".join(_integer(1, size) for size in values.shape)
    where = _bytes(13, location) + _integer(14, _EXTERNAL)
    return dims + _integer(2, _KINDS[values.dtype.name]) + _text(8, name) + where


def _value(name: str, values: Array) -> bytes:
    """A ValueInfoProto of the same type and shape."""
    shape = b"".join(_bytes(1, _integer(1, size)) for size in values.shape)
    kind = _integer(1, _KINDS[values.dtype.name]) + _bytes(2, shape)
    return _text(1, name) + _bytes(2, _bytes(1, kind))


def _opset(domain: str, version: int) -> bytes:
    return _bytes(8, _text(1, domain) + _integer(2, version))


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
