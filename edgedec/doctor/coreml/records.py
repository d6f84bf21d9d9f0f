"""Results of the self-check."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.runtimes.coreml.placement import Placement


@dataclass(frozen=True, slots=True)
class FunctionCheck:
    """One function of a program on one device.

    Attributes:
        load_s: seconds to load it; None if it does not load.
        pass_s: median seconds of a call, coremltools' overhead included; None for the interpreter,
            and where the script did not call it.
        placement: where CoreML would compute it; None if that is not known.
        problem: why it does not load, in one line.

    """

    name: str
    load_s: float | None
    pass_s: float | None
    calls: int
    placement: Placement | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class StepCheck:
    """One step of the script on one device.

    Attributes:
        difference: root mean square of the difference of the logits, relative to their spread.
        problem: why there is none, in one line.

    """

    name: str
    difference: float | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """A program on one device.

    Attributes:
        device: as ``--device`` takes it.
        problem: why nothing could be computed, in one line.
        compile_s: seconds to compile it; None for the interpreter.
        peak_bytes: most memory of the process that computed it.
        unsorted: rows of ``top_n`` whose logits did not descend.
        ties: pairs of equal logits next to each other in ``top_n``.
        ties_by_id: those of them with the smaller id first.

    """

    device: str
    problem: str | None
    compile_s: float | None
    peak_bytes: int | None
    functions: tuple[FunctionCheck, ...]
    steps: tuple[StepCheck, ...]
    unsorted: int
    ties: int
    ties_by_id: int


@dataclass(frozen=True, slots=True)
class ProgramCheck:
    """A program on every device.

    Attributes:
        facts: form, widths and sizes, in one line.
        fingerprint: identifies the file.
        rounding: the largest difference of any step when the interpreter rounds values to fp16.
        limit: the largest difference that passes.

    """

    name: str
    facts: str
    fingerprint: str
    rounding: float
    limit: float
    devices: tuple[DeviceCheck, ...]

    def failures(self) -> list[str]:
        """Return what did not pass, a line each."""
        found = []
        for one in self.devices:
            where = f"{self.name} on {one.device}"
            if one.problem is not None:
                found.append(f"{where}: {one.problem}")
            for function in one.functions:
                if function.problem is not None:
                    found.append(f"{where}, {function.name}: {function.problem}")
            found += [
                f"{where}, {step.name}: {self._problem(step)}"
                for step in one.steps
                if not self.passes(step)
            ]
        return found

    def passes(self, step: StepCheck) -> bool:
        """Return whether a step's numbers are near enough to the interpreter's."""
        return step.difference is not None and step.difference <= self.limit

    def _problem(self, step: StepCheck) -> str:
        if step.difference is None:
            return step.problem or "it was not computed"
        return f"differs by {step.difference:.3g} of the logits' spread, limit {self.limit:.3g}"


@dataclass(frozen=True, slots=True)
class CoremlCheck:
    """What a self-check found.

    Attributes:
        system: versions and machine, in lines.
        missing: what CoreML lacks here, in one line; None on a Mac that has all.

    """

    system: tuple[str, ...]
    missing: str | None
    programs: tuple[ProgramCheck, ...]

    def failures(self) -> list[str]:
        """Return what did not pass, a line each."""
        return [line for program in self.programs for line in program.failures()]
