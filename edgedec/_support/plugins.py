"""Finds what installed packages add, by Python's entry points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgedec._support.fields import one_line


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object that an installed package adds.

    Attributes:
        name: of its entry point.
        package: the distribution that has it, for messages.
        value: the object.

    """

    name: str
    package: str
    value: Any


@dataclass(frozen=True, slots=True)
class Point:
    """An entry point whose object is not imported yet.

    Attributes:
        name: of the entry point.
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


def _package(point: Any) -> str:
    return "an unnamed package" if point.dist is None else str(point.dist.name)
