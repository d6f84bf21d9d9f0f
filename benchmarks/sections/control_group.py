"""Runs a process in a Linux control group of its own, with a memory limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_ENTER = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()));"
    " os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A group of processes, of either version: its folder, and its limit in bytes."""

    folder: Path
    limit: int

    @property
    def peak(self) -> int | None:
        """Peak memory so far in bytes, including the page cache; None if not counted."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            with suppress(OSError, ValueError):
                return int((self.folder / name).read_text("ascii"))
        return None

    @property
    def entering(self) -> list[str]:
        """Prefix of a command line that runs the rest of it inside the group."""
        return [sys.executable, "-c", _ENTER, str(self.folder / "cgroup.procs")]


def run(arguments: Sequence[str], group: ControlGroup | None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, inside a group if one is given."""
    command = [*(group.entering if group else ()), sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def limited(limit: int) -> Iterator[ControlGroup | None]:
    """Create a group with this limit; yield None if this process may not create one."""
    parent = _ROOT / "memory" if (_ROOT / "memory").is_dir() else _ROOT
    folder = parent / f"edgedec-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        yield None
        return
    try:
        files = [folder / name for name in ("memory.limit_in_bytes", "memory.max")]
        there = next((file for file in files if file.exists()), None)
        if there is None:
            yield None
            return
        there.write_text(str(limit))
        yield ControlGroup(folder, limit)
    finally:
        with suppress(OSError):  # a killed process may still be leaving
            folder.rmdir()
