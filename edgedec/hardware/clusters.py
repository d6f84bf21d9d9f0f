"""Clusters of equal cores: a phone's little and big cores are two places."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edgedec.hardware import system_files

_SYSFS = Path("/sys/devices")
# Cores whose figures differ by less than this share are one cluster: some cores of a kind boost
# slightly higher than the others.
_ALIKE = 0.10
# Files in which Linux lists the kinds of hybrid processors' cores; the last is for those outside
# the ring.
_HYBRID = ("cpu_core", "cpu_atom", "cpu_lowpower")
_NAMES = {1: ("all",), 2: ("big", "little"), 3: ("big", "middle", "little")}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of equal cores.

    Attributes:
        cores: one logical processor of each physical core, by the system's number: two threads of
            one core share its arithmetic units, so these are the ones to compute on.
        max_mhz: the highest clock; None if unknown.
        capacity: the scheduler's estimate of a core's speed, 1024 for the fastest; None if unknown.
        name: ``all``, or ``big``, ``middle``, ``little``.

    """

    cores: tuple[int, ...]
    logical: tuple[int, ...]
    max_mhz: float | None
    capacity: int | None
    name: str


@dataclass(frozen=True, slots=True)
class _Core:
    """A physical core."""

    logical: tuple[int, ...]
    kind: int
    capacity: int | None
    max_mhz: float | None

    @property
    def strength(self) -> float:
        return float(self.capacity or self.max_mhz or 0)


def clusters(root: Path = _SYSFS, allowed: Iterable[int] | None = None) -> list[Cluster]:
    """Return the clusters of cores that this process may use, strongest first; never empty.

    Args:
        root: folder in which Linux describes its devices.
        allowed: logical processors; None is those of this process.

    """
    may_use = sorted(_affinity() if allowed is None else allowed)
    if sys.platform == "darwin" and root == _SYSFS:
        return _of_mac(may_use, _sysctl)
    found = _physical(root, may_use)
    groups: list[list[_Core]] = []
    # Kinds are listed strongest first.
    for core in sorted(found, key=lambda core: (core.kind, -core.strength, core.logical)):
        first = groups[-1][0] if groups else None
        if first is not None and (
            first.kind == core.kind and core.strength >= first.strength * (1 - _ALIKE)
        ):
            groups[-1].append(core)
        else:
            groups.append([core])
    return [
        Cluster(
            tuple(sorted(core.logical[0] for core in group)),
            tuple(sorted(number for core in group for number in core.logical)),
            max((core.max_mhz for core in group if core.max_mhz), default=None),
            max((core.capacity for core in group if core.capacity), default=None),
            name,
        )
        for group, name in zip(groups, _names(len(groups)), strict=True)
    ]


def can_pin() -> bool:
    """Return whether this system can pin threads to cores, which makes a cluster a place."""
    return hasattr(os, "sched_setaffinity")


def _names(count: int) -> tuple[str, ...]:
    if count in _NAMES:
        return _NAMES[count]
    return ("big", *(f"middle{number}" for number in range(1, count - 1)), "little")


def _affinity() -> Iterable[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


# -- Linux --------------------------------------------------------------------------------------


def _physical(root: Path, may_use: list[int]) -> list[_Core]:
    """Return cores by their siblings; without that information each processor is a core."""
    kinds = {
        number: kind
        for kind, name in enumerate(_HYBRID)
        for number in _number_list(root / name / "cpus")
    }
    usable = set(may_use)
    seen: set[int] = set()
    found = []
    for number in may_use:
        if number in seen:
            continue
        folder = root / "system" / "cpu" / f"cpu{number}"
        siblings = usable & set(
            _number_list(folder / "topology" / "core_cpus_list")
            or _number_list(folder / "topology" / "thread_siblings_list")
        )
        logical = tuple(sorted(siblings | {number}))
        seen.update(logical)
        khz = system_files.number(folder / "cpufreq" / "cpuinfo_max_freq")
        found.append(
            _Core(
                logical,
                kinds.get(number, 0),
                system_files.number(folder / "cpu_capacity"),
                khz / 1000 if khz else None,
            )
        )
    return found


def _number_list(file: Path) -> list[int]:
    """Parse a list such as ``0-3,8``; empty for an empty text."""
    numbers: list[int] = []
    try:
        for part in file.read_text("ascii").strip().split(","):
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    except (OSError, ValueError):
        return []
    return numbers


# -- macOS --------------------------------------------------------------------------------------


def _of_mac(may_use: list[int], read: Callable[[str], str | None]) -> list[Cluster]:
    """Return performance levels, fastest first; nothing is pinned, so the numbers only count."""
    levels = int(read("hw.nperflevels") or 1)
    left, groups = list(may_use), []
    for level in range(levels):
        physical = int(read(f"hw.perflevel{level}.physicalcpu") or 0)
        logical = int(read(f"hw.perflevel{level}.logicalcpu") or physical)
        # macOS numbers its slowest cores first.
        own, left = left[len(left) - logical :], left[: len(left) - logical]
        if own:
            groups.append((tuple(own[: physical or len(own)]), tuple(own)))
    if left and not groups:
        groups = [(tuple(left), tuple(left))]
    names = _names(len(groups))
    return [
        Cluster(cores, logical, None, None, name)
        for (cores, logical), name in zip(groups, names, strict=True)
    ]


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
