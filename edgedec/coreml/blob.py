"""The blob file of a package: MIL's blob storage, version 2.

A header of 64 bytes (number of blobs, version), then, each at a multiple of 64 bytes, a blob's
metadata of 64 bytes (a sentinel, its type, its size and where its data begins, bits of padding)
and its data. Numbers of four bits are packed two to a byte, the first in the low half.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from edgedec._support.files import open_regular
from edgedec.coreml.types import BITS, NUMPY, Array, Kind, Stored, TensorType
from edgedec.errors import BundleError

_ALIGNMENT = 64
_VERSION = 2
_SENTINEL = 0xDEADBEEF
_HEADER = struct.Struct("<II")
_METADATA = struct.Struct("<IIQQQ")
# MILBlob's numbers of the types.
_TYPES = {
    Kind.FLOAT16: 1,
    Kind.FLOAT32: 2,
    Kind.UINT8: 3,
    Kind.INT8: 4,
    Kind.INT16: 6,
    Kind.UINT16: 7,
    Kind.INT4: 8,
    Kind.UINT4: 11,
    Kind.INT32: 14,
}


class BlobWriter:
    """Writes a blob file; use it as a context manager.

    A tensor comes in parts, of which one is in memory at a time.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._file.write(bytes(_ALIGNMENT))
        self._count = 0

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(self, *details: object) -> None:
        self._file.close()

    def add(self, type: TensorType, parts: Iterable[Array]) -> Stored:
        """Write a tensor that comes in parts, in C order; two values of four bits a byte.

        Raises:
            ValueError: the parts are not of this type and shape.

        """
        begin = self._align()
        self._file.write(bytes(_ALIGNMENT))
        size = 0
        for part in parts:
            data = np.ascontiguousarray(part)
            if data.dtype != (np.uint8 if BITS[type.kind] < 8 else NUMPY[type.kind]):
                raise ValueError(f"{data.dtype} was given for {type}")
            self._file.write(data.data)
            size += data.nbytes
        bits = type.count * BITS[type.kind]
        if size != -(-bits // 8):
            raise ValueError(f"{size} bytes were given for {type}")
        end = self._file.tell()
        self._file.seek(begin)
        self._file.write(
            _METADATA.pack(_SENTINEL, _TYPES[type.kind], size, begin + _ALIGNMENT, size * 8 - bits)
        )
        self._file.seek(end)
        self._count += 1
        return Stored(type, begin)

    def finish(self) -> None:
        """Write the header: the file is complete."""
        self._align()
        self._file.seek(0)
        self._file.write(_HEADER.pack(self._count, _VERSION))

    def _align(self) -> int:
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        return self._file.tell()


class BlobFile:
    """A blob file that is read, mapped into memory.

    Raises:
        BundleError: it cannot be read, or is not of this version.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with open_regular(path) as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            reason = getattr(error, "strerror", None) or "the file is empty"
            raise BundleError(f"{path}: cannot be read: {reason}: export it again") from None
        if len(self._bytes) < _ALIGNMENT:
            raise self._damaged("cut short")
        self._count, version = _HEADER.unpack_from(self._bytes)
        if version != _VERSION:
            raise self._damaged(f"version {version} of the storage, expected {_VERSION}")

    def __len__(self) -> int:
        return len(self._bytes)

    def tensor(self, stored: Stored) -> Array:
        """Return a tensor, read-only; numbers of four bits in a byte each.

        Raises:
            BundleError: it does not lie inside the file, or is of another type or size.

        """
        start, size = self.place(stored)
        kind, shape = stored.type.kind, stored.type.shape
        if BITS[kind] == 4:
            packed = np.frombuffer(self._bytes, np.uint8, size, start)
            return _PAIRS[kind][packed].view(NUMPY[kind])[: stored.type.count].reshape(shape)
        return np.frombuffer(self._bytes, NUMPY[kind], stored.type.count, start).reshape(shape)

    def place(self, stored: Stored) -> tuple[int, int]:
        """Return where a tensor's data begins, and its bytes.

        Raises:
            BundleError: see ``tensor``.

        """
        offset, type = stored.offset, stored.type
        if not _ALIGNMENT <= offset <= len(self._bytes) - _ALIGNMENT or offset % _ALIGNMENT:
            raise self._damaged(f"a constant at {offset}, which is not a place of its")
        sentinel, number, size, start, padding = _METADATA.unpack_from(self._bytes, offset)
        if sentinel != _SENTINEL or start != offset + _ALIGNMENT:
            raise self._damaged(f"no constant at {offset}")
        if start + size > len(self._bytes):
            raise self._damaged(
                f"a constant of {size} bytes at {start}, beyond its end of {len(self._bytes)}"
            )
        bits = type.count * BITS.get(type.kind, 0)
        if number != _TYPES.get(type.kind) or size * 8 != bits + padding or not 0 <= padding < 8:
            raise self._damaged(f"the constant at {offset} is not {type}, as the program says")
        return start, size

    def _damaged(self, what: str) -> BundleError:
        return BundleError(f"{self._path}: {what}: damaged, export it again")


def _pairs(kind: Kind) -> Array:
    """Return by packed byte its two numbers, as the bytes of one number."""
    byte = np.arange(256, dtype=np.uint8)
    halves = np.stack((byte & 15, byte >> 4), axis=-1)
    if kind is Kind.INT4:  # two's complement
        halves = ((halves ^ 8) - np.uint8(8)).astype(np.uint8)
    return halves.view(np.uint16).reshape(-1)


# One look-up is several times as fast as taking halves apart.
_PAIRS = {kind: _pairs(kind) for kind in (Kind.INT4, Kind.UINT4)}
