"""A function of a program: operations over named values, and how it is written in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedec.bundle.messages import Message
from edgedec.bundle.protobuf import Damaged
from edgedec.coreml.schema import MESSAGES
from edgedec.coreml.types import KINDS, NUMPY, Constant, Inline, Kind, Stored, TensorType

# The operations of iOS 18 and macOS 15, which have states.
OPSET = "CoreML8"
BLOB_NAME = "@model_path/weights/weight.bin"
_MOST_RANK = 6
_LARGEST = 1 << 48
_LONGEST_NAME = 1000
# Lists of a constant in the program, by its type; the others are written as bytes.
_LISTS = {Kind.FLOAT32: "floats", Kind.INT32: "ints", Kind.BOOL: "bools"}

# What an operation reads: a value by its name, or a constant.
Operand = str | Constant


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        type: its name in MIL, as ``linear``.
        inputs: by parameter what it reads; several only for a parameter that is a list.
        outputs: names and types of its results; none for ``write_state``.
        value: of ``const``.

    """

    type: str
    inputs: Mapping[str, tuple[Operand, ...]]
    outputs: tuple[tuple[str, TensorType], ...]
    value: Constant | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a program, whose shapes are all static.

    Attributes:
        inputs: tensors that are given, by name.
        states: tensors that stay between calls, by name.
        outputs: names of the values that are returned.
        operations: in the order in which they are computed.

    """

    name: str
    inputs: Mapping[str, TensorType]
    states: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    operations: Sequence[Operation] = field(repr=False)

    def encoded(self) -> bytes:
        """Return the function's message."""
        tensors = [_named(name, type) for name, type in self.inputs.items()]
        states = [
            {"name": name, "type": {"stateType": {"wrappedType": _value_type(type)}}}
            for name, type in self.states.items()
        ]
        block = {"outputs": self.outputs, "operations": list(map(_operation, self.operations))}
        return MESSAGES.encode(
            "Function",
            {
                "inputs": [*tensors, *states],
                "opset": OPSET,
                "block_specializations": {OPSET: block},
            },
        )

    @classmethod
    def decoded(cls, name: str, view: memoryview) -> Function:
        """Return the function of a message, which is untrusted.

        Raises:
            Damaged: it is not one, or uses what no decoder's program uses.

        """
        found = MESSAGES.decode("Function", view)
        if found.get("opset") != OPSET or set(found.get("block_specializations", ())) != {OPSET}:
            raise Damaged
        block = found["block_specializations"][OPSET]
        inputs, states = {}, {}
        for named in found.get("inputs", ()):
            type = named.get("type", {})
            if "stateType" in type:
                states[_name(named)] = _tensor_type(type["stateType"].get("wrappedType", {}))
            else:
                inputs[_name(named)] = _tensor_type(type)
        operations = [_read_operation(each) for each in block.get("operations", ())]
        return cls(name, inputs, states, tuple(block.get("outputs", ())), operations)


# -- writing ------------------------------------------------------------------------------------


def _value_type(type: TensorType) -> Message:
    dimensions = [{"constant": {"size": size}} for size in type.shape]
    tensor = {"dataType": int(type.kind), "rank": len(type.shape), "dimensions": dimensions}
    return {"tensorType": tensor}


def _named(name: str, type: TensorType) -> Message:
    return {"name": name, "type": _value_type(type)}


def _operation(operation: Operation) -> Message:
    message: Message = {"type": operation.type}
    if operation.inputs:
        message["inputs"] = {
            name: {"arguments": [_binding(operand) for operand in operands]}
            for name, operands in operation.inputs.items()
        }
    if operation.outputs:
        message["outputs"] = [_named(name, type) for name, type in operation.outputs]
        message["attributes"] = {"name": constant(text(operation.outputs[0][0]))}
        if operation.value is not None:
            message["attributes"]["val"] = constant(operation.value)
    return message


def _binding(operand: Operand) -> Message:
    return {"name": operand} if isinstance(operand, str) else {"value": constant(operand)}


def constant(value: Constant) -> Message:
    """Return a constant's message."""
    message: Message = {"type": _value_type(value.type)}
    if isinstance(value, Stored):
        message["blobFileValue"] = {"fileName": BLOB_NAME, "offset": value.offset}
    elif isinstance(value.value, str):
        message["immediateValue"] = {"tensor": {"strings": {"values": [value.value]}}}
    else:
        kind = _LISTS.get(value.type.kind, "bytes")
        flat = value.value.reshape(-1)
        values = flat.tobytes() if kind == "bytes" else flat.tolist()
        message["immediateValue"] = {"tensor": {kind: {"values": values}}}
    return message


def text(value: str) -> Inline:
    """Return a constant of text."""
    return Inline(TensorType(Kind.STRING, ()), value)


def inline(value: np.generic | np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Inline:
    """Return an array as a constant in the program."""
    array = np.asarray(value)
    return Inline(TensorType(KINDS[array.dtype], array.shape), array)


# -- reading ------------------------------------------------------------------------------------


def _name(message: Message) -> str:
    name = message.get("name", "")
    if not 0 < len(name) <= _LONGEST_NAME:
        raise Damaged
    return str(name)


def _tensor_type(message: Message) -> TensorType:
    tensor = message.get("tensorType")
    if tensor is None:
        raise Damaged
    try:
        kind = Kind(tensor.get("dataType", 0))
    except ValueError:
        raise Damaged from None
    dimensions = tensor.get("dimensions", [])
    if any("constant" not in each for each in dimensions) or len(dimensions) > _MOST_RANK:
        raise Damaged
    shape = tuple(each["constant"].get("size", 0) for each in dimensions)
    type = TensorType(kind, shape)
    if (
        any(size < 1 for size in shape)
        or type.count > _LARGEST
        or tensor.get("rank", 0) != len(shape)
    ):
        raise Damaged
    return type


def _read_operation(message: Message) -> Operation:
    if "blocks" in message:
        raise Damaged
    inputs = {
        name: tuple(map(_operand, argument.get("arguments", ())))
        for name, argument in message.get("inputs", {}).items()
    }
    outputs = tuple(
        (_name(each), _tensor_type(each["type"]))
        for each in message.get("outputs", ())
        if _typed(each)
    )
    value = message.get("attributes", {}).get("val")
    return Operation(
        message.get("type", ""), inputs, outputs, None if value is None else _constant(value)
    )


def _typed(message: Message) -> bool:
    if "type" not in message:
        raise Damaged
    return True


def _operand(message: Message) -> Operand:
    if ("name" in message) == ("value" in message):
        raise Damaged
    return _name(message) if "name" in message else _constant(message["value"])


def _constant(message: Message) -> Constant:
    type = _tensor_type(message.get("type", {}))
    stored = message.get("blobFileValue")
    if stored is not None:
        if stored.get("fileName") != BLOB_NAME or type.kind is Kind.STRING:
            raise Damaged
        return Stored(type, stored.get("offset", 0))
    tensor = message.get("immediateValue", {}).get("tensor", {})
    if type.kind is Kind.STRING:
        values = tensor.get("strings", {}).get("values", [])
        if len(values) != 1:
            raise Damaged
        return Inline(type, values[0])
    return Inline(type, _array(type, tensor))


def _array(type: TensorType, tensor: Message) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    listed = _LISTS.get(type.kind)
    dtype = NUMPY[type.kind]
    if listed is None:
        data = tensor.get("bytes", {}).get("values", b"")
        if len(data) != type.count * dtype.itemsize:
            raise Damaged
        return np.frombuffer(bytes(data), dtype).reshape(type.shape)
    values = tensor.get(listed, {}).get("values", [])
    if len(values) != type.count:
        raise Damaged
    try:
        return np.array(values, dtype).reshape(type.shape)
    except OverflowError:
        raise Damaged from None
