"""What installed packages add to this one, found by Python's entry points."""

from __future__ import annotations

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


def find(group: str) -> tuple[list[Plugin], list[str]]:
    """What packages add to a group, and a line for each entry point that does not load.

    Args:
        group: as ``edgedec.runtimes``.

    """
    from importlib import metadata  # takes longer to import than all of `edgedec --help`

    found, problems = [], []
    points = [(_package(point), point) for point in metadata.entry_points(group=group)]
    for package, point in sorted(points, key=lambda one: (one[0], one[1].name)):
        try:
            found.append(Plugin(point.name, package, point.load()))
        except (Exception, SystemExit) as error:  # whatever a package does while it is imported
            reason = one_line(str(error)) or type(error).__name__
            problems.append(f"{package}: its entry point {point.name!r} does not load: {reason}")
    return found, problems


def _package(point: Any) -> str:
    return "an unnamed package" if point.dist is None else str(point.dist.name)
