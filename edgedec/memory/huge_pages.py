"""Gathers weights into huge pages after they are loaded.

A pass over one token reads every weight once. In pages of 4 KB the processor looks up a page for
each 8,192 of them, and its prefetchers stop at the end of each page: one row of a 0.5 B target in
four bits takes about a ninth longer than in pages of 2 MB. Runtimes allocate their packed weights
as any other memory, which most Linux distributions keep in small pages unless a program asks. So
what a runtime has allocated while it loaded is collapsed into huge pages in place
(``MADV_COLLAPSE``, Linux 6.1), which copies it once. Weights that are pages of a file stay small.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_COLLAPSE = 25  # MADV_COLLAPSE, which the module mmap lacks
# Less is as fast in small pages: most of them fit the processor's table of pages.
LEAST_BYTES = 32 << 20
# Larger ones (ARM with pages of 16 or 64 KB) leave much of what is loaded outside.
_MOST_PAGE = 32 << 20

_LOWEST_BIT = bytes(number & 1 for number in range(256))

# First and last address of mapped memory.
Range = tuple[int, int]


@contextmanager
def gathering() -> Iterator[None]:
    """Context in which to load weights, which are in huge pages afterwards, where the system can.

    Nothing happens where the administrator has turned huge pages off, or for less than
    ``LEAST_BYTES``. Memory that was there before, and pages not written yet, stay as they are.
    """
    size = _size()
    before = _written() if size else []
    yield
    if size:
        _collapse([part for found in _written() for part in beyond(found, before)], size)


def _size() -> int:
    """Return the size of a huge page in bytes, 0 if they are not to be used."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        size = int((_SETTINGS / "hpage_pmd_size").read_text("ascii"))
        never = "[never]" in (_SETTINGS / "enabled").read_text("ascii")
    except (OSError, ValueError):
        return 0
    return size if not never and mmap.PAGESIZE < size <= _MOST_PAGE else 0


def _written() -> list[Range]:
    """Return the process's private memory that is no file's: its heaps, and what it mapped."""
    found = []
    for line in _MAPS.read_text("utf-8", errors="replace").splitlines():
        addresses, flags, _, _, file, *name = line.split(None, 5)
        if flags == "rw-p" and file == "0" and (not name or name[0] == "[heap]"):
            start, _, end = addresses.partition("-")
            found.append((int(start, 16), int(end, 16)))
    return found


def beyond(found: Range, before: list[Range]) -> list[Range]:
    """Return the parts of a range that are in none of others, which are ascending."""
    start, end = found
    parts = []
    for first, last in before:
        if last > start and first < end:
            parts.append((start, first))
            start = last
    return [part for part in [*parts, (start, end)] if part[0] < part[1]]


def _collapse(ranges: list[Range], size: int) -> None:
    """Put into huge pages what is wholly in memory."""
    library = ctypes.CDLL(None)
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    runs = []
    for start, end in ranges:
        first, last = -(-start // size) * size, end // size * size
        if first < last:
            runs += [(first + at, length) for at, length in _resident(library, first, last, size)]
    if sum(length for _, length in runs) >= LEAST_BYTES:
        for start, length in runs:
            # It may fail, where memory is short or scattered; then the pages stay small.
            library.madvise(start, length, _COLLAPSE)


def _resident(library: ctypes.CDLL, first: int, last: int, size: int) -> Iterator[Range]:
    """Yield the offset and the length of parts, in whole huge pages, that are wholly in memory."""
    pages, each = (
        ctypes.create_string_buffer((last - first) // mmap.PAGESIZE),
        size // mmap.PAGESIZE,
    )
    if library.mincore(first, last - first, pages):
        return
    flags = pages.raw.translate(_LOWEST_BIT)
    whole = (0 not in flags[at : at + each] for at in range(0, len(flags), each))
    for held, group in groupby(enumerate(whole), lambda one: one[1]):
        numbers = [number for number, _ in group]
        if held:
            yield numbers[0] * size, len(numbers) * size
