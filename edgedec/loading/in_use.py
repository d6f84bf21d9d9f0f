"""Notices a weight file that shrinks while it is in use, before a pass reads what is gone.

Runtimes map weights from their files. Reading behind the end of a mapped file ends the process
(SIGBUS), so the length is looked at between two rounds. A file that is removed or replaced by
renaming stays as it was for those who have it open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from edgedec.errors import PassFailed


class FilesInUse:
    """The lengths of files, which are kept open.

    Args:
        files: one that cannot be opened is left out: its runtime says why.

    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._open: list[tuple[Path, int, int]] = []
        if os.name == "nt":  # a file that is open cannot be replaced there
            return
        for file in files:
            with suppress(OSError):
                descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
                self._open.append((file, descriptor, os.fstat(descriptor).st_size))

    def check(self) -> None:
        """Raise PassFailed if a file is shorter than it was."""
        for file, descriptor, size in self._open:
            if (now := os.fstat(descriptor).st_size) < size:
                raise PassFailed(
                    f"{file} was cut short while it was in use: it has {now} bytes and had {size};"
                    " put it back, by renaming it into place"
                )

    def close(self) -> None:
        """Close them; called any number of times."""
        for _, descriptor, _ in self._open:
            os.close(descriptor)
        self._open.clear()
