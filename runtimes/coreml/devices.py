"""The places where CoreML computes: of a Mac its GPU and Neural Engine; anywhere the reference."""

from __future__ import annotations

import importlib.util
import platform

from edgedec._support import installation
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device

REFERENCE = "reference"
# What coremltools calls the units; a preference that CoreML may override.
COMPUTE_UNITS = {"cpu": "CPU_ONLY", "gpu": "CPU_AND_GPU", "ane": "CPU_AND_NE"}
_KINDS = {"cpu": "cpu", "gpu": "gpu", "ane": "npu"}
_NAMES = {"cpu": "CoreML on the processor", "gpu": "CoreML on the GPU", "ane": "the Neural Engine"}
# Programs with states.
_OLDEST = 15


def find_devices() -> list[Device]:
    """Return the devices here; the interpreter is one that every machine has."""
    found = []
    if missing() is None:
        found = [
            Device("coreml", name, kind, f"{_NAMES[name]} (untested: no Mac was at hand)")
            for name, kind in _KINDS.items()
        ]
    text = "interpreter of the saved file in numpy, slow: for checks"
    return [*found, Device("coreml", REFERENCE, "cpu", text)]


def check_device(device: str | None, where: str) -> str:
    """Return the device to load a program on.

    Args:
        device: as named; None is the GPU of a Mac.
        where: the program, for messages.

    Raises:
        RuntimeUnavailable: it is not here.

    """
    if device == REFERENCE:
        return REFERENCE
    lacking = missing()
    if lacking is not None:
        raise RuntimeUnavailable(
            f"{where}: {lacking}; --device {REFERENCE} decodes it anywhere, slowly"
        )
    device = device or "gpu"
    if device not in COMPUTE_UNITS:
        known = ", ".join([*COMPUTE_UNITS, REFERENCE])
        raise RuntimeUnavailable(f"{where}: no device {device!r} of CoreML: it has {known}")
    return device


def missing() -> str | None:
    """Return what CoreML lacks here, or None."""
    if platform.system() != "Darwin":
        return "CoreML computes on macOS only"
    version = platform.mac_ver()[0]
    if int(version.split(".")[0] or 0) < _OLDEST:
        return f"CoreML needs macOS {_OLDEST} for programs with states, this is {version}"
    if importlib.util.find_spec("coremltools") is None:
        return installation.needs("CoreML", "coreml", "coremltools")
    return None
