"""Builds a function: operations whose results' types follow from what they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.coreml.program import Function, Operand, Operation, inline, text
from edgedec.coreml.types import Constant, Inline, Kind, TensorType

# Constants with at most this many values are shared if equal.
_SHARED = 64


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a function, by its name."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


Given = Value | str | bool | float | np.generic | npt.NDArray[Any] | Sequence[Any]


def integers(*values: int) -> npt.NDArray[np.int32]:
    """Return a list of integers as programs take it."""
    return np.array(values, np.int32)


class FunctionBuilder:
    """A function under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: dict[str, TensorType] = {}
        self._states: dict[str, TensorType] = {}
        self._outputs: list[str] = []
        self._operations: list[Operation] = []
        self._constants: dict[object, Value] = {}
        self._count = 0

    def input(self, name: str, kind: Kind, *shape: int) -> Value:
        self._inputs[name] = type = TensorType(kind, shape)
        return Value(name, type)

    def state(self, name: str, *shape: int) -> Value:
        """Declare a state, in fp16."""
        self._states[name] = type = TensorType(Kind.FLOAT16, shape)
        return Value(name, type)

    def output(self, *values: Value) -> None:
        self._outputs += [value.name for value in values]

    def built(self) -> Function:
        return Function(
            self.name, self._inputs, self._states, tuple(self._outputs), self._operations
        )

    # -- operations -----------------------------------------------------------------------------

    def constant(self, value: str | bool | np.generic | npt.NDArray[Any]) -> Value:
        """Return a constant of the program itself."""
        if isinstance(value, str):
            return self._constant(value, text(value))
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= _SHARED else object()
        return self._constant(key, inline(array))

    def _constant(self, key: object, value: Inline) -> Value:
        if key not in self._constants:
            self._constants[key] = self.weight(self._name("c"), "const", value, value.type)
        return self._constants[key]

    def weight(
        self, name: str, operation: str, value: Constant | Mapping[str, Operand], type: TensorType
    ) -> Value:
        """Return a constant: ``const`` of a value, or another operation over stored ones."""
        if isinstance(value, Mapping):
            inputs = {parameter: (operand,) for parameter, operand in value.items()}
            made = Operation(operation, inputs, ((name, type),))
        else:
            made = Operation(operation, {}, ((name, type),), value)
        self._operations.append(made)
        return Value(name, type)

    def operation(
        self, kind: str, *types: TensorType, name: str = "", **inputs: Given
    ) -> tuple[Value, ...]:
        """Add an operation whose results have these types; a list of values is one parameter."""
        given = {
            parameter: tuple(self._given(each) for each in value)
            if isinstance(value, (list, tuple))
            else (self._given(value),)
            for parameter, value in inputs.items()
        }
        base = name or self._name("v")
        names = [base] if len(types) == 1 else [f"{base}_{i}" for i in range(len(types))]
        outputs = tuple(zip(names, types, strict=True))
        self._operations.append(Operation(kind, given, outputs))
        return tuple(Value(each, type) for each, type in outputs)

    def _given(self, value: Given) -> str:
        if isinstance(value, Value):
            return value.name
        return self.constant(value).name  # type: ignore[arg-type]

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def like(self, kind: str, x: Value, *, name: str = "", **inputs: Given) -> Value:
        """Add an operation on ``x`` whose result has its type."""
        return self.operation(kind, x.type, name=name, x=x, **inputs)[0]

    def binary(self, kind: str, x: Value, y: Given) -> Value:
        """Add a sum, difference, product or quotient; a number takes the type of ``x``."""
        if not isinstance(y, Value):
            y = self.constant(np.asarray(y, _FLOATS[x.type.kind]))
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self.operation(kind, TensorType(x.type.kind, shape), x=x, y=y)[0]

    def cast(self, x: Value, kind: Kind) -> Value:
        """Add a cast, unless ``x`` is of that type."""
        if x.type.kind is kind:
            return x
        name = {Kind.FLOAT16: "fp16", Kind.FLOAT32: "fp32"}.get(kind, kind.name.lower())
        return self.operation("cast", TensorType(kind, x.shape), x=x, dtype=name)[0]

    def reshape(self, x: Value, *shape: int) -> Value:
        if shape == x.shape:
            return x
        type = TensorType(x.type.kind, shape)
        return self.operation("reshape", type, x=x, shape=integers(*shape))[0]

    def transpose(self, x: Value, *axes: int) -> Value:
        """Add a permutation of the axes."""
        type = TensorType(x.type.kind, tuple(x.shape[axis] for axis in axes))
        return self.operation("transpose", type, x=x, perm=integers(*axes))[0]

    def split(self, x: Value, *sizes: int) -> tuple[Value, ...]:
        """Add a split of the last axis."""
        types = [TensorType(x.type.kind, (*x.shape[:-1], size)) for size in sizes]
        return self.operation(
            "split", *types, x=x, split_sizes=integers(*sizes), axis=np.int32(len(x.shape) - 1)
        )

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Add a concatenation."""
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        type = TensorType(values[0].type.kind, tuple(shape))
        given = {"values": list(values), "axis": np.int32(axis), "interleave": np.bool_(False)}
        return self.operation("concat", type, **given)[0]

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Add the rows of ``x``, along an axis, that the indices name."""
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return self.operation(
            "gather", TensorType(x.type.kind, shape), x=x, indices=indices, axis=np.int32(axis),
            batch_dims=np.int32(0), validate_indices=np.bool_(False),
        )[0]  # fmt: skip

    def part(self, x: Value, begin: Sequence[int], end: Sequence[int]) -> Value:
        """Add a slice."""
        shape = tuple(high - low for low, high in zip(begin, end, strict=True))
        type = TensorType(x.type.kind, shape)
        return self.operation(
            "slice_by_index", type, x=x, begin=integers(*begin), end=integers(*end)
        )[0]

    def linear(self, x: Value, weight: Value, bias: Value | None = None, name: str = "") -> Value:
        """Add ``x @ weight.T + bias``."""
        type = TensorType(x.type.kind, (*x.shape[:-1], weight.shape[0]))
        more: dict[str, Given] = {} if bias is None else {"bias": bias}
        return self.operation("linear", type, name=name, x=x, weight=weight, **more)[0]

    def matmul(self, x: Value, y: Value, *, transpose_y: bool = False) -> Value:
        """Add the product of matrices in the last two axes."""
        columns = y.shape[-2] if transpose_y else y.shape[-1]
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        type = TensorType(x.type.kind, (*batch, x.shape[-2], columns))
        return self.operation(
            "matmul", type, x=x, y=y,
            transpose_x=np.bool_(False), transpose_y=np.bool_(transpose_y),
        )[0]  # fmt: skip

    # -- states ---------------------------------------------------------------------------------

    def read(self, state: Value) -> Value:
        return self.operation("read_state", state.type, input=state)[0]

    def write(self, state: Value, data: Value) -> None:
        """Add a writing of a state."""
        self.operation("write_state", input=state, data=data)


_FLOATS = {Kind.FLOAT16: np.float16, Kind.FLOAT32: np.float32, Kind.INT32: np.int32}
