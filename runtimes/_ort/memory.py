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
