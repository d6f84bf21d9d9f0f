"""Reads safetensors a few rows at a time, with a header that is checked before it is used.

The format: 8 bytes of header length, a JSON header with dtype, shape and byte range of each
tensor, then the bytes. The reference library maps the file, so that a pass over a checkpoint
counts all of it as this process's memory, and its numpy interface has no bfloat16. This reader
has neither limit, and refuses every inconsistent header.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec.errors import CheckpointError
from edgedec.export.needed import explained_imports

# The reference implementation's own limit.
MAX_HEADER_BYTES = 100_000_000
_DTYPES: Mapping[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Of maps between vocabularies, which are no weights.
_INTEGERS: Mapping[str, str] = {"I64": "int64", "I32": "int32"}


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """A safetensors file of which only the header stays in memory.

    Raises:
        CheckpointError: the header is inconsistent, or the file is truncated.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as stream:
                size = os.fstat(stream.fileno()).st_size
                self._data_start, header = self._read_header(stream.read, size)
            self._entries = {
                name: self._entry(name, entry, size - self._data_start)
                for name, entry in header.items()
                if name != "__metadata__"
            }
            self._check_overlaps()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors."""
        return frozenset(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's extents."""
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        """Return a tensor's type as the format calls it: ``F32``, ``BF16`` and so on."""
        return self._entries[name].dtype

    def rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Return ``tensor[start:stop]`` in the file's own type."""
        return self._part(name, start, stop, _DTYPES)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return a tensor of whole numbers."""
        whole = self._part(name, 0, (self.shape(name) or (0,))[0], _INTEGERS)
        return whole.astype(np.int64)

    def _part(self, name: str, start: int, stop: int, known: Mapping[str, str]) -> npt.NDArray[Any]:
        entry = self._entries[name]
        if entry.dtype not in known:
            shown = f"{one_line(name)} is {one_line(entry.dtype)}"
            raise CheckpointError(f"{self.path}: {shown}, expected {', '.join(known)}")
        dtype = _numpy(known[entry.dtype])
        columns = math.prod(entry.shape[1:])
        offset = self._data_start + entry.start + start * columns * dtype.itemsize
        count = (stop - start) * columns
        try:
            part = np.fromfile(self.path, dtype, count, offset=offset)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from None
        if len(part) != count:
            raise CheckpointError(f"{self.path} was cut short while it was read")
        return part.reshape(stop - start, *entry.shape[1:])

    def _read_header(self, read: Any, size: int) -> tuple[int, dict[str, Any]]:
        length = int.from_bytes(read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise self._wrong(f"its header should have {length} bytes, the file has {size}")
        try:
            header = json.loads(read(length))
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise self._wrong("its header is not a JSON object")
        return 8 + length, header

    def _entry(self, name: str, entry: Any, available: int) -> _Entry:
        fields = entry if isinstance(entry, dict) else {}
        dtype, shape, span = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not (isinstance(dtype, str) and _sizes(shape) and _sizes(span)) or len(span) != 2:
            raise self._wrong(f"its header describes no tensor under {name[:100]!r}")
        start, stop = span
        if not start <= stop <= available:
            raise self._wrong(f"{name[:100]!r} should end at byte {stop} of {available}: cut short")
        known = {**_DTYPES, **_INTEGERS}
        if dtype in known:
            needed = math.prod(shape) * _numpy(known[dtype]).itemsize
            if needed != stop - start:
                raise self._wrong(
                    f"{name[:100]!r} needs {needed} bytes for its shape, it has {stop - start}"
                )
        return _Entry(dtype, tuple(shape), start, stop)

    def _check_overlaps(self) -> None:
        spans = sorted((e.start, e.stop, name) for name, e in self._entries.items())
        for (_, stop, name), (start, _, other) in itertools.pairwise(spans):
            if start < stop:
                raise self._wrong(f"{name[:100]!r} and {other[:100]!r} share bytes")

    def _wrong(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is not a sound safetensors file: {reason}")


def _sizes(value: Any) -> TypeGuard[list[int]]:
    """Return whether a value is a short list of non-negative integers."""
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(type(item) is int and 0 <= item < 1 << 60 for item in value)
    )


def _numpy(name: str) -> np.dtype[Any]:
    """Return a type of numpy, which knows bfloat16 once ``ml_dtypes`` is imported."""
    if name == "bfloat16":
        with explained_imports():
            import ml_dtypes
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name)
