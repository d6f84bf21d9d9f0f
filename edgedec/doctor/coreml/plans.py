"""Where CoreML would compute the functions of a bundle, for ``edgedec devices``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json, one_line, to_json
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, ProfileError
from edgedec.runtimes.coreml.compiled import CompiledProgram
from edgedec.runtimes.coreml.devices import COMPUTE_UNITS, missing
from edgedec.runtimes.coreml.placement import Placement

_CHILD = "edgedec.doctor.coreml.plans"
_PATIENCE_S = 1800.0


@dataclass(frozen=True, slots=True)
class PlacedProgram:
    """A program's functions by the devices that it may be asked to run on.

    Attributes:
        devices: by device and function, where CoreML would compute it.
        problems: by device, why that is not known, in one line; by ``coreml`` of all of them.

    """

    name: str
    devices: dict[str, dict[str, Placement]]
    problems: dict[str, str]

    def lines(self) -> list[tuple[str, str]]:
        """Return rows of a table; functions with the same placement share one."""
        rows = []
        for device, functions in self.devices.items():
            alike: dict[str, list[str]] = {}
            for name, placement in functions.items():
                alike.setdefault(str(placement), []).append(name)
            rows += [
                (f"{self.name} on {device}", f"{', '.join(names)}: {placement}")
                for placement, names in alike.items()
            ]
        rows += [
            (self.name if device == "coreml" else f"{self.name} on {device}", problem)
            for device, problem in self.problems.items()
        ]
        return rows


def placed(
    programs: Mapping[str, Path], ask: Callable[[str, Path], PlacedProgram] | None = None
) -> tuple[PlacedProgram, ...]:
    """Return where CoreML would compute programs; elsewhere than on a Mac, that it is not known.

    Args:
        programs: their packages by name.
        ask: reads one; None does it in a child process.

    """
    lacking = missing()
    if lacking is not None:
        unknown = f"where its functions would run is not known here: {lacking}"
        return tuple(PlacedProgram(name, {}, {"coreml": unknown}) for name in programs)
    return tuple((ask or _in_child)(name, path) for name, path in programs.items())


def read_placements(name: str, path: Path, tools: Any = None) -> PlacedProgram:
    """Compile a program and read its compute plans.

    Raises:
        RuntimeUnavailable: CoreML does not compile it.

    """
    program = CompiledProgram(path, tools)
    found, problems = {}, {}
    for device in COMPUTE_UNITS:
        try:
            found[device] = program.placements(device)
        except EdgedecError as error:
            problems[device] = one_line(str(error))
    program.close()
    return PlacedProgram(name, found, problems)


def _in_child(name: str, path: Path) -> PlacedProgram:
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_PATIENCE_S)
    task = {"name": name, "package": str(path)}
    try:
        answer = ask_once(_CHILD, task, limits, environment={})
    except (Stopped, Refused) as error:
        return PlacedProgram(name, {}, {"coreml": str(error)})
    return from_json(PlacedProgram, answer, "placements", ProfileError)


def main(task: Mapping[str, Any]) -> Any:
    """Read the plans of ``package``, in the child process; return a ``PlacedProgram``."""
    return to_json(read_placements(task["name"], Path(task["package"])))


if __name__ == "__main__":
    _sandbox_child.serve(main)
