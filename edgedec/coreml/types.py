"""Types of the values of a program, and how they are stored."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Kind(enum.IntEnum):
    """MIL's data types, by their numbers in MIL.proto."""

    BOOL = 1
    STRING = 2
    FLOAT16 = 10
    FLOAT32 = 11
    INT8 = 21
    INT16 = 22
    INT32 = 23
    INT4 = 25
    UINT8 = 31
    UINT16 = 32
    UINT4 = 35


# Numbers of four bits are held in a byte each.
NUMPY: dict[Kind, np.dtype[Any]] = {
    Kind.BOOL: np.dtype(np.bool_),
    Kind.FLOAT16: np.dtype(np.float16),
    Kind.FLOAT32: np.dtype(np.float32),
    Kind.INT8: np.dtype(np.int8),
    Kind.INT16: np.dtype(np.int16),
    Kind.INT32: np.dtype(np.int32),
    Kind.INT4: np.dtype(np.int8),
    Kind.UINT8: np.dtype(np.uint8),
    Kind.UINT16: np.dtype(np.uint16),
    Kind.UINT4: np.dtype(np.uint8),
}
BITS = {
    kind: 4 if kind in (Kind.INT4, Kind.UINT4) else 8 * of.itemsize for kind, of in NUMPY.items()
}
# Types of a function's inputs and outputs, by their numbers in FeatureTypes.proto.
FEATURES = {Kind.FLOAT16: 65552, Kind.FLOAT32: 65568, Kind.INT32: 131104}
# Of a dtype, the type that a program declares it as.
KINDS = {NUMPY[kind]: kind for kind in Kind if kind not in (Kind.STRING, Kind.INT4, Kind.UINT4)}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's data type and its extents, all of them known."""

    kind: Kind
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.kind.name.lower()}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A constant in the blob file: its type, and where its metadata begins."""

    type: TensorType
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """A constant in the program itself: an array, or a text."""

    type: TensorType
    value: Array | str


Constant = Stored | Inline
