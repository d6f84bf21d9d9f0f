"""The block that an owner of a Mac pastes into an issue."""

from __future__ import annotations

from collections.abc import Iterator

from edgedec.doctor.coreml.records import CoremlCheck, DeviceCheck, FunctionCheck, ProgramCheck

# Figures that only this machine can give.
NEEDS_A_MAC = (
    "that CoreML compiles and loads the programs",
    "on which unit operations run (MLComputePlan)",
    "that functions share one state there",
    "how devices round sums in fp16, and order equal logits",
    "all speeds, loading times and memory there",
)


def block(found: CoremlCheck) -> str:
    """Return the report as one block of Markdown."""
    failures = found.failures()
    lines = ["edgedec doctor --coreml", *found.system]
    if found.missing is not None:
        lines.append(f"{found.missing}; the interpreter computed instead, with values in fp16")
        lines.append("needs a Mac:")
        lines += [f"  {each}" for each in NEEDS_A_MAC]
    for program in found.programs:
        lines += ["", *_program(program)]
    lines += ["", "result: " + ("all passed" if not failures else f"{len(failures)} failed")]
    lines += [f"  {line}" for line in failures]
    return "\n".join(["```", *lines, "```"])


def _program(program: ProgramCheck) -> Iterator[str]:
    yield f"{program.name} ({program.fingerprint}): {program.facts}"
    yield (
        f"  rounding to fp16 alone changes logits by {program.rounding:.2g} of their spread;"
        f" up to {program.limit:.2g} passes"
    )
    for device in program.devices:
        yield from _device(program, device)


def _device(program: ProgramCheck, found: DeviceCheck) -> Iterator[str]:
    compiled = "" if found.compile_s is None else f" compiled in {found.compile_s:.1f} s,"
    peak = "" if found.peak_bytes is None else f" at most {found.peak_bytes / 1e6:.0f} MB"
    yield f"  {found.device}:{compiled}{peak}" if compiled or peak else f"  {found.device}:"
    if found.problem is not None:
        yield f"    problem: {found.problem}"
    if found.compile_s is None:  # the interpreter, whose speed says nothing
        yield from (
            f"    {one.name}  FAILED: {one.problem}" for one in found.functions if one.problem
        )
    elif found.functions:
        yield f"    {'function':12}{'load s':>8}{'ms a call':>11}{'calls':>7}  placement"
        yield from (f"    {_function(one)}" for one in found.functions)
    if found.steps:
        yield f"    {'numbers':12}{'difference':>11}"
    for step in found.steps:
        if step.difference is None:
            yield f"    {step.name:12}{'-':>11}  FAILED: {step.problem}"
        else:
            verdict = "" if program.passes(step) else "  FAILED"
            yield f"    {step.name:12}{step.difference:>11.2g}{verdict}"
    if found.steps:
        yield (
            f"    best tokens: {found.unsorted} rows not sorted; {found.ties} pairs of equal"
            f" logits, {found.ties_by_id} with the smaller id first"
        )


def _function(found: FunctionCheck) -> str:
    load = "-" if found.load_s is None else f"{found.load_s:.2f}"
    taken = "-" if found.pass_s is None else f"{1e3 * found.pass_s:.2f}"
    placed = "" if found.placement is None else f"  {found.placement}"
    problem = "" if found.problem is None else f"  FAILED: {found.problem}"
    return f"{found.name:12}{load:>8}{taken:>11}{found.calls:>7}{placed}{problem}".rstrip()
