"""Reads what kinds of memory this process holds: its own, and pages of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROCESS = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class MemoryKinds:
    """Resident memory by kind, in bytes.

    Attributes:
        private: pages that no file backs, such as packed weights made at a load, and mapped pages
            that were written to. They are this process's alone and can only be swapped.
        mapped: pages of files, such as weights that are mapped; other processes may share them.
        reclaimable: mapped pages that are as in their file, which the system drops when memory is
            short and reads again when they are needed.
        proportional: private, and of every mapped page this process's part: the sum over all
            processes is what they hold together.

    """

    private: int
    mapped: int
    reclaimable: int
    proportional: int


def memory_kinds(process: Path = _PROCESS) -> MemoryKinds | None:
    """Return what a process holds now; None on systems that do not report it.

    It walks all mappings, which takes about a millisecond for a loaded model.

    Args:
        process: its folder in ``/proc``.

    """
    try:
        lines = (process / "smaps_rollup").read_text("ascii").splitlines()[1:]
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in map(_split, lines)}
        mapped = found["Rss"] - found["Anonymous"]
        clean = found["Shared_Clean"] + found["Private_Clean"]
        return MemoryKinds(found["Anonymous"], mapped, min(clean, mapped), found["Pss"])
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")
