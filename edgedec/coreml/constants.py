"""The constants of a package as arrays, read from the blob file when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from edgedec.coreml.operations import Undefined
from edgedec.coreml.package import Package
from edgedec.coreml.program import Operand, Operation
from edgedec.coreml.types import Array, Inline, Stored, TensorType


@dataclass(frozen=True, slots=True)
class Large:
    """A large constant, which is read when an operation needs it."""

    operation: Operation
    type: TensorType


class Constants:
    """The constants of a package as arrays, shared by its functions.

    Args:
        exact: see ``Interpreter``.
        most: bytes that are kept; what is beyond is read, and computed, for each use.

    """

    def __init__(self, package: Package, *, exact: bool, most: int = 1 << 62) -> None:
        self.package, self.exact = package, exact
        self._left = most
        self._found: dict[tuple[object, ...], Array] = {}

    def of(self, operation: Operation) -> Array | str:
        """Return the value of ``const``, or of an operation whose inputs are all constants."""
        if operation.value is not None:
            return self.value(operation.value)
        compute, operands = _COMPUTED[operation.type], operation.inputs
        key: tuple[object, ...] = (operation.type,)
        for name in sorted(operands):
            (operand,) = operands[name]
            if not isinstance(operand, Stored):
                raise Undefined(f"{operation.type} of what is not stored")
            key += (name, operand)

        def dense() -> Array:
            arguments = {name: self._raw(operands[name][0]) for name in operands}
            with np.errstate(all="ignore"):  # infinite scales of a damaged file
                return rounded(compute(arguments), exact=self.exact)

        return self._kept(key, dense)

    def value(self, constant: Stored | Inline) -> Array | str:
        """Return a constant; floating-point numbers as float32."""
        if isinstance(constant, Inline):
            return constant.value if isinstance(constant.value, str) else whole(constant.value)
        return self._kept((constant,), lambda: whole(self.package.blob.tensor(constant)))

    def _kept(self, key: tuple[object, ...], compute: Callable[[], Array]) -> Array:
        if key in self._found:
            return self._found[key]
        found = compute()
        if found.nbytes <= self._left:
            self._left -= found.nbytes
            self._found[key] = found
        return found

    def _raw(self, operand: Operand) -> Array:
        assert isinstance(operand, Stored)
        return self.package.blob.tensor(operand)


def rounded(value: Array, *, exact: bool) -> Array:
    """Return float32 numbers rounded to fp16, unless values are kept exact."""
    if exact:
        return value.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):
        return value.astype(np.float16).astype(np.float32)


def whole(value: Array) -> Array:
    """Return numbers of fp16 as float32."""
    return value.astype(np.float32) if value.dtype == np.float16 else value


def _blockwise(a: Mapping[str, Array]) -> Array:
    data, scale = a["data"].astype(np.float32), a["scale"].astype(np.float32)
    rows, columns = data.shape
    if rows % scale.shape[0] or columns % scale.shape[1]:
        raise Undefined(f"scales of {scale.shape} for data of {data.shape}")
    blocks = data.reshape(
        scale.shape[0], rows // scale.shape[0], scale.shape[1], columns // scale.shape[1]
    )
    blocks *= scale[:, None, :, None]  # in place: ``data`` is a copy of its own
    return data


def _palette(a: Mapping[str, Array]) -> Array:
    indices, lut = a["indices"], a["lut"]
    groups, columns, size, width = lut.shape
    if indices.shape[0] % groups or columns != 1 or width != 1 or indices.max() >= size:
        raise Undefined(f"palettes of {lut.shape} for indices of {indices.shape}")
    each = indices.reshape(groups, -1)
    table = lut.reshape(groups, size).astype(np.float32)
    dense: Array = np.take_along_axis(table, each.astype(np.intp), axis=1).reshape(indices.shape)
    return dense


# Constants that are stored in another form.
_COMPUTED: Mapping[str, Callable[[Mapping[str, Array]], Array]] = {
    "constexpr_blockwise_shift_scale": _blockwise,
    "constexpr_lut_to_dense": _palette,
}
