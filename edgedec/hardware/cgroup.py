"""Limits that Linux control groups set for this process; both versions, nested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgedec.hardware.system_files import number, text

# Version 1 writes "no limit" as the largest multiple of a page that fits in a long.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Allowance:
    """The tightest limits among the groups around this process.

    Attributes:
        limit: bytes that all processes of the group may use together.
        free: bytes until the nearest limit, which may be another group's; caches that the system
            reclaims on demand count as free.

    """

    limit: int
    free: int


def allowance(root: Path = Path("/")) -> Allowance | None:
    """Return this process's memory limits; None if there are none."""
    found = [known for folder in _groups(root, "memory") if (known := _read(folder)) is not None]
    if not found:
        return None
    return Allowance(min(one.limit for one in found), min(one.free for one in found))


def processors(root: Path = Path("/")) -> float | None:
    """Return this process's seconds of processor time per second; None if unlimited."""
    found = [quota for folder in _groups(root, "cpu") if (quota := _quota(folder)) is not None]
    return min(found, default=None)


def _quota(folder: Path) -> float | None:
    """Return one group's limit, of either version; None if it has none."""
    version_2 = text(folder / "cpu.max").split()
    if len(version_2) == 2:
        given, period = version_2
    else:
        given = text(folder / "cpu.cfs_quota_us")
        period = text(folder / "cpu.cfs_period_us")
    if not (given.isdigit() and period.isdigit()):  # "max", or -1
        return None
    return int(given) / int(period) if int(given) and int(period) else None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups for one controller, innermost first."""
    mounts = list(_mounts(root, controller))
    for line in text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 2 if not controllers else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        for kind, inside, point in mounts:
            if kind != version:
                continue
            top = root / point.lstrip("/")
            folder = top / _below(PurePosixPath(path), PurePosixPath(inside))
            while folder != top and top in folder.parents:
                yield folder
                folder = folder.parent
            yield top


def _below(path: PurePosixPath, inside: PurePosixPath) -> PurePosixPath:
    """Return a group's path below the mounted group, or the mounted group itself.

    A container may see its own group as the root; a group outside its namespace begins with two
    dots.
    """
    if ".." in path.parts or not path.is_relative_to(inside):
        return PurePosixPath()
    return path.relative_to(inside)


def _mounts(root: Path, controller: str) -> Iterator[tuple[int, str, str]]:
    """Yield version, mounted group and mount point of each mount with this controller."""
    for line in text(root / "proc/self/mountinfo").splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            yield 2, fields[3], fields[4]
        elif kind[0] == "cgroup" and controller in kind[2].split(","):
            yield 1, fields[3], fields[4]


def _read(folder: Path) -> Allowance | None:
    """Return one group's limit, of either version; None if it has none."""
    limits = [
        number(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")
    ]
    limit = min((n for n in limits if n is not None and n < _NO_LIMIT), default=None)
    if limit is None:
        return None
    used = number(folder / "memory.current") or number(folder / "memory.usage_in_bytes") or 0
    facts = dict(
        line.split(maxsplit=1) for line in text(folder / "memory.stat").splitlines() if " " in line
    )
    caches = facts.get("total_inactive_file", facts.get("inactive_file", "0"))
    held = used - (int(caches) if caches.isdigit() else 0)
    return Allowance(limit, max(0, limit - max(0, held)))
