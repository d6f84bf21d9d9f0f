"""Memory that is reserved at once and used as it is written."""

from __future__ import annotations

import contextlib
import mmap


def reserve(size: int) -> mmap.mmap | None:
    """Address space whose pages take memory when they are written; None where there is none."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    reserved = mmap.mmap(-1, size, flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            reserved.madvise(mmap.MADV_NOHUGEPAGE)
    return reserved


def give_back(reserved: mmap.mmap) -> None:
    """Free reserved memory: now, or where an array still shows it, when that is dropped.

    The traceback of an interrupt keeps the arrays of its frames, and closing what they show
    raises BufferError, which would hide the interrupt.
    """
    with contextlib.suppress(BufferError):
        reserved.close()
