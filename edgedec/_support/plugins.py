"""Finds what installed packages add, by Python's entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object that an installed package adds.

    Attributes:
        name: of its entry point.
        package: the distribution that has it, for messages.

    """

    name: str
    package: str
    value: Any


@dataclass(frozen=True, slots=True)
class Point:
    """An entry point whose object is not imported yet.

    Attributes:
        package: the distribution that has it, for messages.
        load: imports the object.

    """

    name: str
    package: str
    load: Callable[[], Any]

    def value(self) -> tuple[Any, str]:
        """The object, and a line that says why it does not load; empty if it does."""
        try:
            return self.load(), ""
        except (Exception, SystemExit) as error:  # whatever a package does while it is imported
            reason = one_line(str(error)) or type(error).__name__
            return None, f"{self.package}: its entry point {self.name!r} does not load: {reason}"


def points(group: str) -> list[Point]:
    """The entry points of a group, in an order of their own, none of them loaded."""
    if not _announced(group):
        return []
    from importlib import metadata  # takes longer to import than all of `edgedec --help`

    found = [Point(p.name, _package(p), p.load) for p in metadata.entry_points(group=group)]
    return sorted(found, key=lambda point: (point.package, point.name))


def find(group: str) -> tuple[list[Plugin], list[str]]:
    """Return what packages add to a group, and a line for each entry point that does not load.

    Args:
        group: as ``edgedec.runtimes``.

    """
    found, problems = [], []
    for point in points(group):
        value, problem = point.value()
        if problem:
            problems.append(problem)
        else:
            found.append(Plugin(point.name, point.package, value))
    return found, problems


def _announced(group: str) -> bool:
    """Return whether a package may add to a group: whether a list of entry points has its heading.

    Most often none does, and to find that out takes a fraction of importing ``importlib.metadata``.
    """
    others = (finder for finder in sys.meta_path if finder is not PathFinder)
    if any(hasattr(finder, "find_distributions") for finder in others):
        return True
    heading = f"[{group}]".encode()
    for folder in sys.path:
        try:
            names = [path.name for path in Path(folder or ".").iterdir()]
        except NotADirectoryError:
            return True  # an archive
        except OSError:
            continue
        lists = (Path(folder, name, "entry_points.txt") for name in names if _is_metadata(name))
        if any(heading in _bytes(file) for file in lists):
            return True
    return False


def _is_metadata(name: str) -> bool:
    return name.lower().endswith((".dist-info", ".egg-info")) or name == "EGG-INFO"


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _package(point: Any) -> str:
    return "an unnamed package" if point.dist is None else str(point.dist.name)
