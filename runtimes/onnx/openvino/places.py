"""Lists OpenVINO as a device, and recognises options that request it, without importing it."""

from __future__ import annotations

import importlib.util

from edgedec.errors import ExtraMissing, InputError
from edgedec.hardware.device import Device
from edgedec.hardware.machine import cpu_name
from edgedec.records.load import LoadOptions

EXTRA = PACKAGE = DEVICE = "openvino"
# Listed with the names of ONNX Runtime's execution providers.
PROVIDER = "OpenVINO"


def find_devices() -> list[Device]:
    """Return the processor with OpenVINO's kernels, if it is installed."""
    found = version()
    if found is None:
        return []
    return [Device("onnx", DEVICE, "cpu", f"{cpu_name()} ({found})", PROVIDER)]


def is_there() -> bool:
    """Return whether a package of this name can be imported; faster than ``version``."""
    return importlib.util.find_spec(PACKAGE) is not None


def version() -> str | None:
    """Return the name and version of the kernels; None if they are not installed."""
    if not is_there():
        return None
    from importlib import metadata  # takes a tenth of the time of importing this package

    try:
        return f"OpenVINO {metadata.version(PACKAGE)}"
    except metadata.PackageNotFoundError:  # another folder of this name
        return None


def wanted(options: LoadOptions) -> bool:
    """Return whether these options name OpenVINO.

    Raises:
        InputError: they name something else as well.
        RuntimeUnavailable: it is not installed.

    """
    named = {*options.providers, *([options.device] if options.device else ())}
    if not named & {DEVICE, PROVIDER}:
        return False
    others = sorted(named - {DEVICE, PROVIDER})
    if others or options.own:
        other = next(iter([*others, *options.own]))
        raise InputError(
            f"{other} cannot be combined with OpenVINO's kernels: leave one of the two out"
        )
    if not find_devices():
        from edgedec._support import installation

        raise ExtraMissing(installation.needs(f"the device {DEVICE!r}", EXTRA, "openvino"))
    return True
