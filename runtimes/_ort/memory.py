"""Memory that is reserved at once and allocated as it is written."""

from __future__ import annotations

import contextlib
import mmap


def reserve(size: int) -> mmap.mmap | None:
    """Reserve address space whose pages are allocated when written; None if that fails."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    reserved = mmap.mmap(-1, size, flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            reserved.madvise(mmap.MADV_NOHUGEPAGE)
    return reserved


def release(reserved: mmap.mmap) -> None:
    """Free reserved memory: now, or when the last array that views it is dropped.

    An interrupt's traceback keeps its frames' arrays alive, and closing memory that they view
    raises BufferError, which would hide the interrupt.
    """
    with contextlib.suppress(BufferError):
        reserved.close()
