"""The adapter of the runtime ``onnx``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from pathlib import Path

from edgedec.bundle.onnx_file import check_listed as admit
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.devices import find_devices
from edgedec.runtimes._ort.plugins import problems
from edgedec.runtimes._ort.speed import measure
from edgedec.runtimes.onnx.model import OnnxModel

__all__ = ["admit", "devices", "load", "measure", "problems"]


def load(path: Path, options: LoadOptions) -> OnnxModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return OnnxModel.load(
        path,
        threads=options.threads,
        providers=options.providers,
        device=options.device,
        row_invariant=options.row_invariant,
    )


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return find_devices("onnx")
