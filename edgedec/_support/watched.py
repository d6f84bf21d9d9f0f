"""Weight files that a process has mapped: they must stay as they were opened.

Reading a mapped page past the end of its file kills the process (SIGBUS), and bytes written to the
file change the weights in the middle of a text. So files are compared with what they were before
each pass; a file that was removed, or replaced under its name, stays readable.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from edgedec._support.files import open_regular
from edgedec.errors import PassFailed


class Watched:
    """Files whose length and time of change are remembered.

    Args:
        paths: opened now, before they are mapped; closed with the last reference.

    Raises:
        OSError: one cannot be opened.

    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._facts: list[tuple[Path, int, tuple[int, int]]] = []
        for path in paths:
            file = open_regular(path)
            weakref.finalize(self, file.close)
            self._facts.append((path, file.fileno(), state(file.fileno())))

    def check(self) -> None:
        """Raise PassFailed if a file changed since it was opened."""
        for path, file, facts in self._facts:
            unchanged(path, file, facts)


def state(file: int) -> tuple[int, int]:
    """Return the length of an open file in bytes, and its time of change in nanoseconds."""
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


def unchanged(path: Path, file: int, facts: tuple[int, int]) -> None:
    """Raise PassFailed if an open file's ``state`` is not what it was."""
    now = state(file)
    if now == facts:
        return
    how = "it was written to"
    if now[0] != facts[0]:
        how = f"it has {now[0]} bytes, expected {facts[0]}"
    raise PassFailed(
        f"{path} changed while its weights were in use ({how}): put the file back if it is damaged,"
        " and load the model again"
    )
