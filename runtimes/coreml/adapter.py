"""The adapter of the runtime ``coreml``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from pathlib import Path

from edgedec.coreml.describe import describe
from edgedec.coreml.package import check_listed as admit
from edgedec.records.load import LoadOptions
from edgedec.runtimes.coreml.devices import find_devices as devices
from edgedec.runtimes.coreml.model import CoremlModel

__all__ = ["admit", "describe", "devices", "load"]


def load(path: Path, options: LoadOptions) -> CoremlModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return CoremlModel.load(path, device=options.device)
