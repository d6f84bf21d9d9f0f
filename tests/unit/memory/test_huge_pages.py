"""Loaded weights are gathered into huge pages; nothing else is touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgedec.memory import huge_pages
from edgedec.memory.huge_pages import LEAST_BYTES, beyond, gathering

_SIZE = 2 * LEAST_BYTES
HUGE = 2 << 20


def mapped(size: int = _SIZE) -> mmap.mmap:
    """Return memory that the system shows as a mapping of its own, not joined with neighbours."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_DONTFORK)
    return memory


def address(memory: mmap.mmap) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def write(memory: mmap.mmap, size: int = _SIZE) -> None:
    np.frombuffer(memory, np.uint8)[:size] = 1


def kilobytes(name: str, at: int) -> int:
    """Return a figure of the mapping at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= at < end
        elif inside and first == f"{name}:":
            return int(rest[0])
    raise AssertionError(f"{at:x} is not mapped")


def huge(memory: mmap.mmap) -> int:
    return kilobytes("AnonHugePages", address(memory))


def _collapse(memory: mmap.mmap) -> None:
    """Ask for huge pages as the code does, but not by the code: broken, it must not be skipped."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    first = -(-address(memory) // HUGE) * HUGE
    madvise(first, _SIZE - HUGE, 25)  # MADV_COLLAPSE


@pytest.fixture
def _possible() -> None:
    """Skip where memory is in huge pages anyway, or cannot be."""
    size = huge_pages._size()
    if not size:
        pytest.skip("no huge pages on this machine")
    with closing(mapped()) as memory:
        write(memory)
        if huge(memory):
            pytest.skip("all memory is in huge pages on this machine")
        _collapse(memory)
        if not huge(memory):
            pytest.skip("this kernel does not collapse memory into huge pages")


@pytest.mark.usefixtures("_possible")
def test_what_is_loaded_is_in_huge_pages_and_keeps_its_bytes() -> None:
    expected = np.arange(_SIZE // 8)
    with gathering():
        memory = mapped()
        np.frombuffer(memory, np.int64)[:] = expected
    with closing(memory):
        assert huge(memory) >= LEAST_BYTES // 1024
        assert (np.frombuffer(memory, np.int64) == expected).all()


@pytest.mark.usefixtures("_possible")
def test_memory_from_before_stays_in_small_pages() -> None:
    with closing(mapped()) as memory:
        with gathering():
            write(memory)
        assert huge(memory) == 0


@pytest.mark.usefixtures("_possible")
def test_reserved_memory_that_was_not_written_is_not_filled() -> None:
    with gathering():
        memory = mapped()
        write(memory, LEAST_BYTES + (8 << 20))
    with closing(memory):
        assert huge(memory)
        assert kilobytes("Rss", address(memory)) <= (LEAST_BYTES + (12 << 20)) // 1024


@pytest.mark.usefixtures("_possible")
def test_little_memory_stays_as_it_is() -> None:
    with gathering():
        memory = mapped(LEAST_BYTES // 2)
        write(memory, LEAST_BYTES // 2)
    with closing(memory):
        assert huge(memory) == 0


@pytest.mark.usefixtures("_possible")
def test_an_administrator_may_turn_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    with gathering():
        memory = mapped()
        write(memory)
    with closing(memory):
        assert huge(memory) == 0


@pytest.mark.parametrize(
    ("size", "enabled", "found"),
    [
        ("2097152\n", "always [madvise] never\n", 2097152),
        ("2097152\n", "always madvise [never]\n", 0),
        (str(64 << 20), "[always] madvise never\n", 0),
        ("4096", "[always] madvise never\n", 0),
        ("none", "[always] madvise never\n", 0),
    ],
)
def test_the_size_is_the_systems(
    size: str, enabled: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hpage_pmd_size").write_text(size)
    (tmp_path / "enabled").write_text(enabled)
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    assert huge_pages._size() == (found if sys.platform.startswith("linux") else 0)


def test_elsewhere_loading_works_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    monkeypatch.setattr(huge_pages, "_MAPS", Path("/not/there"))
    with gathering():
        loaded = True
    assert loaded


@pytest.mark.parametrize(
    ("found", "before", "parts"),
    [
        ((10, 20), [], [(10, 20)]),
        ((10, 20), [(10, 20)], []),
        ((10, 20), [(0, 12), (14, 15), (18, 30)], [(12, 14), (15, 18)]),
        ((10, 20), [(2, 4), (20, 24)], [(10, 20)]),
        ((10, 20), [(10, 15)], [(15, 20)]),
    ],
)
def test_parts_beyond(
    found: huge_pages.Range, before: list[huge_pages.Range], parts: list[huge_pages.Range]
) -> None:
    assert beyond(found, before) == parts
