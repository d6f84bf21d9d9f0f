"""The adapter of the runtime ``onnx-static``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from edgedec.bundle.onnx_file import check_listed
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.devices import find_devices, problems
from edgedec.runtimes._ort.metadata import sizes
from edgedec.runtimes.onnx_static.describe import describe
from edgedec.runtimes.onnx_static.model import StaticModel

__all__ = ["admit", "describe", "devices", "load", "problems", "sizes"]


def load(path: Path, options: LoadOptions) -> StaticModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return StaticModel.load(
        path, threads=options.threads, providers=options.providers, device=options.device
    )


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return find_devices("onnx-static")


def admit(path: Path, files: Collection[Path]) -> None:
    """See ``edgedec.runtimes.registry.Adapter``: every graph of the model is checked."""
    for file in files:
        if file.suffix == path.suffix:
            check_listed(file, files)
