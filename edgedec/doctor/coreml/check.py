"""Runs the self-check over programs and devices."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from edgedec._support.fields import from_json, to_json
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.coreml.package import check_listed, package_folder
from edgedec.decoding.tree import FloatArray
from edgedec.doctor.coreml.records import CoremlCheck, DeviceCheck, ProgramCheck
from edgedec.doctor.coreml.script import Script, differences
from edgedec.errors import InputError, ProfileError
from edgedec.hardware import machine
from edgedec.runtimes.coreml.devices import COMPUTE_UNITS, REFERENCE, missing
from edgedec.runtimes.coreml.executor import ReferenceExecutor
from edgedec.runtimes.coreml.model import CoremlModel

FORMAT = "coreml"
_CHILD = "edgedec.doctor.coreml.measure"
# The Neural Engine's compiler may take many minutes for a large program.
_PATIENCE_S = 1800.0
# Dense weights that are kept in memory while the interpreter computes.
_KEPT_BYTES = 1 << 30
# A difference passes up to some times that of rounding to fp16, since a device may round sums, too.
_FLOOR, _TIMES = 0.02, 4.0
OnProgress = Callable[[str, int, int], None]
Measure = Callable[[Path, str, Mapping[str, FloatArray]], DeviceCheck]


def check_bundle(bundle: str, on_progress: OnProgress = lambda *step: None) -> CoremlCheck:
    """Check the CoreML programs of a bundle.

    Raises:
        BundleError: it is damaged.
        InputError: it has no CoreML program.

    """
    return check(programs_of(bundle), on_progress)


def programs_of(bundle: str) -> dict[str, Path]:
    """Return the CoreML packages of a bundle by role.

    Raises:
        BundleError: it is damaged.
        InputError: it has no CoreML program.

    """
    opened = Bundle.open(bundle)
    variants = {
        role.role: role.variants[FORMAT] for role in opened.roles if FORMAT in role.variants
    }
    if not variants:
        raise InputError(
            f"{bundle} has no CoreML program, only {', '.join(opened.formats)}: make one with"
            " `edgedec export --format coreml`"
        )
    for variant in variants.values():
        check_listed(variant.path, [opened.path / name for name in variant.files])
    return {role: package_folder(variant.path) for role, variant in variants.items()}


def check_sample(on_progress: OnProgress = lambda *step: None) -> CoremlCheck:
    """Write small decoders with random weights in each form, and check them.

    Raises:
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    from edgedec.doctor.coreml.sample import write_samples

    with tempfile.TemporaryDirectory(prefix="edgedec-sample-") as folder:
        return check(write_samples(Path(folder)), on_progress)


def check(programs: Mapping[str, Path], on_progress: OnProgress) -> CoremlCheck:
    """Check programs on every device of this machine.

    Args:
        programs: their packages by name.
        on_progress: called with the next step, the number done and the total.

    Raises:
        BundleError: a package is damaged.

    """
    lacking = missing()
    devices = list(COMPUTE_UNITS) if lacking is None else [REFERENCE]
    total, found = len(programs) * (1 + len(devices)), []
    for index, (name, path) in enumerate(programs.items()):
        done = index * (1 + len(devices))

        def step(what: str, more: int, done: int = done) -> None:
            on_progress(what, done + more, total)

        found.append(check_program(name, path, devices, step, in_child))
    on_progress("", total, total)
    return CoremlCheck(system(), lacking, tuple(found))


def check_program(
    name: str,
    path: Path,
    devices: Sequence[str],
    on_step: Callable[[str, int], None],
    measure: Measure,
) -> ProgramCheck:
    """Check one program on some devices; an error of one does not affect the others."""
    package = Package.open(path)
    on_step(f"{name}: expected numbers", 0)
    exact, rounding = expected(package)
    found = []
    for index, device in enumerate(devices):
        on_step(f"{name} on {device}", 1 + index)
        try:
            one = measure(package.folder, device, exact)
        except (Stopped, Refused) as error:
            one = DeviceCheck(device, str(error), None, None, (), (), 0, 0, 0)
        found.append(_without(f"{package.folder}: ", one))
    model = CoremlModel(package, ReferenceExecutor(Constants(package, exact=True)))
    facts = model.facts
    line = (
        f"{facts.form} form, {package.facts.get('weights')} weights of"
        f" {package.weight_bytes / 1e6:.1f} MB,"
        f" cache {list(facts.cache)}, widths {', '.join(map(str, facts.rows))}"
    )
    limit = _FLOOR + _TIMES * rounding
    return ProgramCheck(name, line, model.fingerprint[:16], rounding, limit, tuple(found))


def _without(prefix: str, found: DeviceCheck) -> DeviceCheck:
    """Return a check without a user's path in its problems: the block is for an issue."""
    text = json.dumps(to_json(found)).replace(json.dumps(prefix)[1:-1], "")
    return from_json(DeviceCheck, json.loads(text), "check", ProfileError)


def expected(package: Package) -> tuple[dict[str, FloatArray], float]:
    """Return the interpreter's logits by step, and by how much rounding to fp16 changes them."""
    scores = []
    for exact in (True, False):
        constants = Constants(package, exact=exact, most=_KEPT_BYTES)
        scores.append(Script(CoremlModel(package, ReferenceExecutor(constants)), top=False).run())
    wanted, rounded = scores
    return wanted.logits, max(differences(rounded, wanted.logits).values())


def in_child(package: Path, device: str, wanted: Mapping[str, FloatArray]) -> DeviceCheck:
    """Measure in a child process, which a driver may crash or hang.

    Raises:
        Stopped: it did.
        Refused: nothing can be computed there.

    """
    with tempfile.TemporaryDirectory(prefix="edgedec-check-") as folder:
        numbers = Path(folder) / "expected.npz"
        np.savez(numbers, **wanted)  # type: ignore[arg-type]
        task = {"package": str(package), "device": device, "expected": str(numbers)}
        limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_PATIENCE_S)
        answer = ask_once(_CHILD, task, limits, environment={})
    return from_json(DeviceCheck, answer, "check", ProfileError)


def system() -> tuple[str, ...]:
    """Return versions and machine, in lines."""
    try:
        tools = f"coremltools {metadata.version('coremltools')}"
    except metadata.PackageNotFoundError:
        tools = "no coremltools"
    macos = platform.mac_ver()[0]
    name = f"macOS {macos}" if macos else f"{platform.system()} {platform.release()}"
    total = machine.memory().total
    return (
        f"edgedec {__version__}, {tools}, Python {platform.python_version()}",
        f"{name} {platform.machine()}, {machine.cpu_name()}"
        + ("" if total is None else f", {total / 1e9:.0f} GB"),
    )
