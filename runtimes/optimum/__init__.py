"""Decoders as optimum-onnx exports them: keys and values go in and come out in every pass.

Any architecture that optimum knows, at a price: a pass copies the whole cache, and there are no
branching trees.
"""

from __future__ import annotations

from pathlib import Path

from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.devices import find_devices
from edgedec.runtimes._ort.plugins import problems
from edgedec.runtimes._ort.speed import measure
from edgedec.runtimes.optimum.model import OptimumModel
from edgedec.runtimes.optimum.session import OptimumSession

__all__ = ["OptimumModel", "OptimumSession", "devices", "load", "measure", "problems"]


def load(path: Path, options: LoadOptions) -> OptimumModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    options.only("optimum", "threads", "providers", "device", "row_invariant")
    return OptimumModel.load(
        path,
        threads=options.threads,
        providers=options.providers,
        device=options.device,
        row_invariant=options.row_invariant,
    )


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return find_devices("optimum")
