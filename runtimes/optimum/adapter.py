"""The adapter of the runtime ``optimum``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from pathlib import Path

from edgedec.bundle.onnx_file import check_listed as admit
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.devices import find_devices, problems
from edgedec.runtimes._ort.metadata import sizes
from edgedec.runtimes.optimum.model import OptimumModel

__all__ = ["admit", "devices", "load", "problems", "sizes"]


def load(path: Path, options: LoadOptions) -> OptimumModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return OptimumModel.load(
        path,
        threads=options.threads,
        providers=options.providers,
        device=options.device,
        batch_invariant=options.batch_invariant,
    )


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return find_devices("optimum")
