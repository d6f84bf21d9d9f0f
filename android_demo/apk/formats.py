"""Reads as much of APKs, dex files and ELF libraries as the checks need."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_LOAD = 1
_CALL_SITES = 0x0007


@dataclass(frozen=True)
class Entry:
    """A file in an APK: whether it is stored, and where its bytes begin."""

    name: str
    stored: bool
    offset: int
    size: int


def entries(apk: Path) -> list[Entry]:
    """Return all files of a zip."""
    found = []
    with zipfile.ZipFile(apk) as archive, apk.open("rb") as stream:
        for info in archive.infolist():
            stream.seek(info.header_offset)
            header = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
            offset = info.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
            stored = info.compress_type == zipfile.ZIP_STORED
            found.append(Entry(info.filename, stored, offset, info.file_size))
    return found


def load_alignments(library: bytes) -> list[int]:
    """Return the alignment of each loaded segment of a 64-bit little-endian ELF file."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("expected a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<2H", library, 54)
    headers = [struct.unpack_from("<2I6Q", library, table + n * size) for n in range(count)]
    return [header[7] for header in headers if header[0] == _LOAD]


class Dex:
    """A dex file: the names of its classes, the number of its methods and of its call sites."""

    def __init__(self, data: bytes):
        if data[:4] != b"dex\n":
            raise ValueError("expected a dex file")
        self._data = data
        self._strings = struct.unpack_from("<2I", data, 56)
        self._types = struct.unpack_from("<2I", data, 64)
        self._classes = struct.unpack_from("<2I", data, 96)
        self.methods: int = struct.unpack_from("<I", data, 88)[0]

    def classes(self) -> Iterator[str]:
        """Yield the names of the defined classes, as `dev/edgedec/core/Engine`."""
        count, offset = self._classes
        for number in range(count):
            (index,) = struct.unpack_from("<I", self._data, offset + 32 * number)
            yield self._type(index).removeprefix("L").removesuffix(";")

    def call_sites(self) -> int:
        """Return how many call sites `invoke-custom` refers to."""
        (offset,) = struct.unpack_from("<I", self._data, 52)
        (count,) = struct.unpack_from("<I", self._data, offset)
        items = [
            struct.unpack_from("<2H2I", self._data, offset + 4 + 12 * number)
            for number in range(count)
        ]
        return sum(item[2] for item in items if item[0] == _CALL_SITES)

    def _type(self, index: int) -> str:
        (string,) = struct.unpack_from("<I", self._data, self._types[1] + 4 * index)
        (offset,) = struct.unpack_from("<I", self._data, self._strings[1] + 4 * string)
        # Its length in characters is before it, in groups of seven bits.
        while self._data[offset] & 0x80:
            offset += 1
        end = self._data.index(0, offset + 1)
        return self._data[offset + 1 : end].decode("utf-8", "surrogatepass")
