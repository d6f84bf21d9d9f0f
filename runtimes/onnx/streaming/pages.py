"""Replaces weights that a runtime has mapped by anonymous memory, filled by direct reads.

Exactly the requested bytes are read, bypassing the page cache, whose read-ahead and eviction take
several times as long as the pass when memory is short. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from edgedec.errors import PassFailed, RuntimeUnavailable

PAGE = mmap.PAGESIZE
_CHUNK = 8 << 20
_TRIES, _PAUSE_S = 3, 0.05
_FIXED = 0x10  # MAP_FIXED, which the module mmap lacks


@dataclass(frozen=True, slots=True)
class Span:
    """Mapped bytes of a file, in whole pages.

    Attributes:
        address: in memory.
        offset: in the file.
        length: in bytes.

    """

    address: int
    offset: int
    length: int

    def split(self, at: int) -> tuple[list[Span], list[Span]]:
        """Return the first ``at`` bytes and the rest, each as a list of one span or none."""
        at = min(max(at, 0), self.length)
        first = [Span(self.address, self.offset, at)] if at else []
        rest = Span(self.address + at, self.offset + at, self.length - at)
        return first, [rest] if rest.length else []


def require() -> None:
    """Refuse systems on which weights cannot be streamed.

    Raises:
        RuntimeUnavailable: the system is not Linux.

    """
    if not sys.platform.startswith("linux"):
        raise RuntimeUnavailable(
            "weights larger than memory are streamed on Linux only: leave --weight-memory out"
        )


def mapped(file: Path) -> list[Span]:
    """Return where this process has mapped parts of a file."""
    wanted, found = os.fsencode(file.resolve()), []
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5] == wanted:
            start, _, end = parts[0].partition(b"-")
            address = int(start, 16)
            found.append(Span(address, int(parts[2], 16), int(end, 16) - address))
    return found


class Source:
    """A file whose spans are read, directly where its file system can.

    Args:
        path: the file; it must keep its length.

    Raises:
        OSError: it cannot be opened.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            self._file, self._direct = os.open(path, flags | os.O_DIRECT), True
        except OSError:  # a file system without direct reads
            self._file, self._direct = os.open(path, flags), False
        self.size = os.fstat(self._file).st_size

    def fill(self, span: Span) -> None:
        """Read a span's bytes into its memory; a failed read is tried again.

        Raises:
            PassFailed: the file is shorter than it was, or cannot be read.

        """
        for at in range(0, span.length, _CHUNK):
            length = min(_CHUNK, span.length - at)
            self._read(span.address + at, span.offset + at, length)
        if not self._direct:
            os.posix_fadvise(self._file, span.offset, span.length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _check_length(self) -> None:
        now = os.fstat(self._file).st_size
        if now != self.size:
            raise PassFailed(
                f"{self.path} changed while its weights were in use (it has {now} bytes, expected"
                f" {self.size}): put the file back if it is damaged, and load the model again"
            )

    def _read(self, address: int, offset: int, length: int) -> None:
        memory = (ctypes.c_char * length).from_address(address)
        expected = min(length, self.size - offset)
        for left in reversed(range(_TRIES)):
            try:
                if read(self._file, memory, offset) == expected:
                    return
                self._check_length()
            except OSError as error:
                if not left:
                    raise PassFailed(
                        f"{self.path}: its weights cannot be read"
                        f" ({error.strerror or error}): check the disk"
                    ) from error
            time.sleep(_PAUSE_S)
        raise PassFailed(f"{self.path}: a read at {offset} came back short: check the disk")


def read(file: int, memory: ctypes.Array[ctypes.c_char], offset: int) -> int:
    """Read bytes of a file into memory; return how many."""
    return os.preadv(file, [memory], offset)


# -- memory -------------------------------------------------------------------------------------


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [pointer, size, ctypes.c_int]
    libc.mlock.argtypes = [pointer, size]
    return libc


_LIBC = _libc() if sys.platform.startswith("linux") else None


def own(span: Span) -> None:
    """Replace a mapped span by empty anonymous memory.

    Raises:
        RuntimeUnavailable: the system refuses.

    """
    assert _LIBC is not None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
    kind = mmap.PROT_READ | mmap.PROT_WRITE
    if _LIBC.mmap(span.address, span.length, kind, flags, -1, 0) != span.address:
        reason = os.strerror(ctypes.get_errno())
        raise RuntimeUnavailable(f"memory for streamed weights cannot be mapped: {reason}")


def enlarge(span: Span) -> None:
    """Use huge pages for a span that is streamed as a whole, to allocate 512 times fewer per pass.

    A huge page never extends into neighbouring memory, which stays resident.
    """
    assert _LIBC is not None
    _LIBC.madvise(span.address, span.length, mmap.MADV_HUGEPAGE)


def lock(span: Span) -> bool:
    """Lock a span's pages in memory; False if this user may not."""
    assert _LIBC is not None
    return bool(_LIBC.mlock(span.address, span.length) == 0)


def release(span: Span) -> None:
    """Release a span's pages; its bytes are zeros until it is filled again."""
    assert _LIBC is not None
    _LIBC.madvise(span.address, span.length, mmap.MADV_DONTNEED)
