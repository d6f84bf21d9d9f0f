"""Checks one program on one device, in a process of its own: drivers may crash."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child
from edgedec._support.fields import one_line, to_json
from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.decoding.tree import FloatArray
from edgedec.doctor.coreml.records import DeviceCheck, FunctionCheck, StepCheck
from edgedec.doctor.coreml.script import Scores, Script, differences
from edgedec.doctor.coreml.watched import Watched
from edgedec.errors import EdgedecError
from edgedec.hardware.resident import peak_bytes
from edgedec.runtimes.coreml.compiled import CompiledProgram
from edgedec.runtimes.coreml.devices import REFERENCE
from edgedec.runtimes.coreml.executor import CoremlExecutor, ReferenceExecutor
from edgedec.runtimes.coreml.mac import MacExecutor
from edgedec.runtimes.coreml.model import CoremlModel
from edgedec.runtimes.coreml.placement import Placement


def measure(
    path: Path, device: str, expected: Mapping[str, FloatArray], tools: Any = None
) -> DeviceCheck:
    """Check a program on a device.

    Args:
        device: ``cpu``, ``gpu`` or ``ane`` of a Mac; ``reference`` rounds values to fp16.
        expected: logits by step, see ``script``.
        tools: coremltools; None imports it.

    Raises:
        RuntimeUnavailable: CoreML does not compile the program.
        EdgedecError: the package is damaged, or no function can be computed.

    """
    package = Package.open(path)
    if device == REFERENCE:
        return _checked(package, device, ReferenceExecutor(Constants(package, exact=False)),
                        None, expected)  # fmt: skip
    program = CompiledProgram(package.folder, tools)
    return _checked(package, device, MacExecutor(program, device), program, expected)


def _checked(
    package: Package,
    device: str,
    executor: CoremlExecutor,
    program: CompiledProgram | None,
    expected: Mapping[str, FloatArray],
) -> DeviceCheck:
    watched = Watched(executor)
    model = CoremlModel(package, watched)
    names = sorted(package.names, key=lambda name: (name.split("_")[0], len(name), name))
    loads = {name: _load(watched, name) for name in names}
    plan_problem, placed = _placements(program, device)
    script, problem = Script(model, top=True), plan_problem
    try:
        scores = script.run()
    except EdgedecError as error:  # not even the prompt is read
        scores, problem = Scores(), one_line(str(error))
    # The interpreter's own speed says nothing of a device.
    functions = _functions(watched, loads, placed, timed=program is not None)
    found = DeviceCheck(
        device,
        problem,
        None if program is None else program.compile_s,
        peak_bytes(),
        tuple(functions),
        tuple(_steps(script, scores, expected)),
        watched.unsorted,
        watched.ties,
        watched.ties_by_id,
    )
    model.close()
    return found


def _load(executor: CoremlExecutor, name: str) -> tuple[float | None, str | None]:
    """Return the seconds that loading a function took, or why it does not load."""
    begin = time.perf_counter()
    try:
        executor.load(name)
    except EdgedecError as error:
        return None, one_line(str(error))
    return time.perf_counter() - begin, None


def _placements(
    program: CompiledProgram | None, device: str
) -> tuple[str | None, dict[str, Placement]]:
    if program is None:
        return None, {}
    try:
        return None, program.placements(device)
    except EdgedecError as error:
        return one_line(str(error)), {}


def _functions(
    watched: Watched,
    loads: Mapping[str, tuple[float | None, str | None]],
    placed: Mapping[str, Placement],
    *,
    timed: bool,
) -> Iterator[FunctionCheck]:
    for name, (seconds, problem) in loads.items():
        taken, calls = None, 0
        if timed and problem is None:
            try:
                taken, calls = watched.timed(name)
            except EdgedecError as error:
                problem = one_line(str(error))
        yield FunctionCheck(name, seconds, taken, calls, placed.get(name), problem)


def _steps(
    script: Script, scores: Scores, expected: Mapping[str, FloatArray]
) -> Iterator[StepCheck]:
    found = differences(scores, expected)
    for name in script.steps:
        difference, problem = found.get(name), scores.problems.get(name)
        if difference is not None and not np.isfinite(difference):
            difference, problem = None, "the numbers are not finite"
        yield StepCheck(name, difference, problem)


def main(task: Mapping[str, Any]) -> Any:
    """Check ``package`` on ``device`` against the numbers in ``expected``; a ``DeviceCheck``."""
    with np.load(task["expected"], allow_pickle=False) as stored:
        expected = {name: stored[name] for name in stored.files}
    return to_json(measure(Path(task["package"]), task["device"], expected))


if __name__ == "__main__":
    _sandbox_child.serve(main)
