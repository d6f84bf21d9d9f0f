"""Reads a file whose lengths are untrusted: nothing is allocated before it is checked."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec._support.fields import one_line
from edgedec.errors import BundleError

CHUNK = 1 << 20
MAX_HEADER_BYTES = 256 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class ByteSource:
    """The bytes of a file, read once from the beginning.

    Args:
        file: opened for reading, at its beginning.
        size: bytes the file has.
        where: its name in messages.

    """

    def __init__(self, file: BinaryIO, size: int, where: Path) -> None:
        self._file = file
        self._size = size
        self._where = where
        self._buffer = b""
        self._at = 0
        self._before = 0  # bytes of the file before the buffer

    @property
    def position(self) -> int:
        """Number of bytes read so far."""
        return self._before + self._at

    @property
    def left(self) -> int:
        """Number of bytes left in the file."""
        return self._size - self.position

    def wrong(self, message: str) -> BundleError:
        """Return an error that names the file."""
        return BundleError(f"{one_line(str(self._where))}: {message}")

    def check(self, count: int, what: str) -> None:
        """Refuse a length of ``count`` bytes beyond the end of the file."""
        if count > self.left:
            raise self.wrong(
                f"it is cut short or damaged: {what} should take {count} bytes from byte "
                f"{self.position} on, and {self.left} are left: download or copy it again"
            )
        if self.position + count > MAX_HEADER_BYTES:
            raise self.wrong(
                f"{what} would make its header larger than {MAX_HEADER_BYTES >> 20} MiB: "
                "the file is damaged or no language model"
            )

    def take(self, count: int, what: str) -> bytes:
        """Return the next ``count`` bytes."""
        self._need(count, what)
        found = self._buffer[self._at : self._at + count]
        self._at += count
        return found

    def u32(self, what: str) -> int:
        """Return an unsigned number of 4 bytes."""
        value: int = _U32.unpack(self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Return an unsigned number of 8 bytes."""
        value: int = _U64.unpack(self.take(8, what))[0]
        return value

    def numbers(self, count: int, kind: str, what: str) -> npt.NDArray[np.generic]:
        """Return ``count`` numbers of a numpy type, [count]."""
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize, what), kind)

    def text(self, what: str, limit: int) -> str:
        """Return a length-prefixed UTF-8 text; invalid bytes become lone surrogates."""
        length = self.u64(what)
        if length > limit:
            self.check(length, what)
            raise self.wrong(f"{what} has {length} bytes, expected at most {limit}")
        return self.take(length, what).decode("utf-8", "surrogateescape")

    def texts(self, count: int, what: str) -> list[str]:
        """Return ``count`` texts; fast, since a vocabulary has hundreds of thousands."""
        self.check(8 * count, what)
        unpack = _U64.unpack_from
        found: list[str] = []
        while len(found) < count:
            self._need(8, what)
            self._need(8 + unpack(self._buffer, self._at)[0], what)
            buffer, at, end = self._buffer, self._at, len(self._buffer)
            for _ in range(count - len(found)):
                start = at + 8
                if start > end or (stop := start + unpack(buffer, at)[0]) > end:
                    break
                found.append(buffer[start:stop].decode("utf-8", "surrogateescape"))
                at = stop
            self._at = at
        return found

    def _need(self, count: int, what: str) -> None:
        """Load the next ``count`` bytes into the buffer."""
        there = len(self._buffer) - self._at
        if there >= count:
            return
        self.check(count, what)
        kept = self._buffer[self._at :]
        self._before, self._at = self.position, 0
        self._buffer = kept + self._file.read(max(count - there, CHUNK))
        if len(self._buffer) < count:
            raise self.wrong("it became shorter while it was read: copy it again")
