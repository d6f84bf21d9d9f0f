"""What is read of zips, ELF libraries and dex files, each against bytes written by hand."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from android_demo.apk.formats import Dex, entries, load_alignments

LOAD, DYNAMIC = 1, 2


def elf(*segments: tuple[int, int]) -> bytes:
    """A 64-bit library of nothing but program headers: their kind and alignment."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<2H", header, 54, 56, len(segments))
    table = b"".join(
        struct.pack("<2I6Q", kind, 0, 0, 0, 0, 0, 0, align) for kind, align in segments
    )
    return bytes(header) + table


def dex(names: list[str], *, call_sites: int = 0) -> bytes:
    """A dex file whose classes have these names, with a map of one section."""
    header = bytearray(112)
    header[:4] = b"dex\n"
    count = len(names)
    strings, types = 112, 112 + 4 * count
    classes, texts = types + 4 * count, types + 36 * count
    at, table, data = texts, b"", b""
    for name in names:
        table += struct.pack("<I", at)
        text = bytes([len(name) + 2]) + f"L{name};".encode() + b"\0"
        data, at = data + text, at + len(text)
    kinds = b"".join(struct.pack("<I", number) for number in range(count))
    defined = b"".join(struct.pack("<8I", number, *[0] * 7) for number in range(count))
    struct.pack_into("<I", header, 52, at)
    for place, value in ((56, (count, strings)), (64, (count, types)), (96, (count, classes))):
        struct.pack_into("<2I", header, place, *value)
    struct.pack_into("<I", header, 88, 1234)
    sections = struct.pack("<I2H2I", 1, 0x0007 if call_sites else 0x0001, 0, call_sites, 0)
    return bytes(header) + table + kinds + defined + data + sections


def test_alignments_are_those_of_loaded_segments() -> None:
    assert load_alignments(elf((LOAD, 0x4000), (DYNAMIC, 8), (LOAD, 0x1000))) == [0x4000, 0x1000]


def test_a_library_of_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        load_alignments(b"\x7fELF\x01\x01" + bytes(100))


def test_classes_and_call_sites_of_a_dex_file() -> None:
    found = Dex(dex(["a/B", "c/D$e"], call_sites=3))
    assert list(found.classes()) == ["a/B", "c/D$e"]
    assert (found.methods, found.call_sites()) == (1234, 3)
    assert Dex(dex(["a/B"])).call_sites() == 0


def test_entries_of_a_zip_begin_where_their_bytes_are(tmp_path: Path) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("stored", b"plain")
        archive.writestr("deflated", b"x" * 100, zipfile.ZIP_DEFLATED)
    stored, deflated = entries(file)
    assert (stored.name, stored.stored, stored.size) == ("stored", True, 5)
    assert file.read_bytes()[stored.offset :].startswith(b"plain")
    assert (deflated.name, deflated.stored) == ("deflated", False)
