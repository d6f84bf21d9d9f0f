"""Reads how much memory this process holds."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from edgedec.hardware.system_files import sizes

_STATUS, _MAPS = Path("/proc/self/status"), Path("/proc/self/smaps")
_RANGES = Path("/proc/self/maps")
_PAGES = "/proc/self/statm"
_MOST = 256
_MMAP_THRESHOLD = -3  # of mallopt


def resident_bytes() -> int:
    """Return this process's resident memory; its peak if the system does not report that.

    It takes microseconds, so that it can be asked while a text is decoded.
    """
    try:
        file = os.open(_PAGES, os.O_RDONLY)
        try:
            pages = int(os.read(file, _MOST).split()[1])
        finally:
            os.close(file)
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return peak_bytes() or 0


def unread_bytes() -> int:
    """Return the bytes of mapped files that are not in memory; 0 if the system does not say.

    Libraries, which are mapped to be executed, do not count.
    """
    sizes: Counter[str] = Counter()
    libraries, file = set(), ""
    try:
        with _MAPS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, *values = line.split()
                if not name.endswith(":"):
                    file = values[4] if len(values) > 4 and values[4].startswith("/") else ""
                    if "x" in values[0]:
                        libraries.add(file)
                elif file and name in ("Size:", "Rss:"):
                    sizes[file] += (1 if name == "Size:" else -1) * int(values[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return sum(size for file, size in sizes.items() if file not in libraries)


def drop_pages(file: Path) -> None:
    """Give back the memory of a file that is mapped to be read; Linux only, elsewhere nothing.

    The mapping stays valid: what is read again comes from the system's cache of the file, or from
    the disk. Parts that this process may write keep their pages, which may have been changed.
    """
    advise = _of_c_library("madvise")
    if advise is None or not sys.platform.startswith("linux"):
        return
    try:
        state = file.stat()
        lines = _RANGES.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        addresses, flags, _, _, number, *name = line.split(None, 5)
        # By path as well: the numbers of a device differ from ``stat`` on some file systems.
        if number == str(state.st_ino) and "w" not in flags and name == [os.path.realpath(file)]:
            start, end = (int(part, 16) for part in addresses.split("-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def release_free() -> None:
    """Give free memory of the C library's heap back to the system, where the library can."""
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def keep_heap_small() -> None:
    """Have large blocks mapped from now on, so that they go back to the system when freed.

    The GNU library otherwise keeps freed blocks of up to 32 MB in its heap.
    """
    set_option = _of_c_library("mallopt")
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, 1 << 20)


@functools.cache
def _of_c_library(name: str) -> Callable[..., int] | None:
    """Return one of the GNU library's functions; other libraries have none."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    return found


def peak_bytes() -> int | None:
    """Return the peak resident memory of this process; None if the system does not report it."""
    # getrusage would include the process that started this one.
    if (peak := sizes(_STATUS).get("VmHWM")) is not None:
        return peak
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
