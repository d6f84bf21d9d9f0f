"""The adapter of the runtime ``coreml``: see ``edgedec.runtimes.registry.Adapter``."""

from __future__ import annotations

from pathlib import Path

from edgedec.coreml.describe import describe
from edgedec.coreml.package import Package
from edgedec.coreml.package import check_listed as admit
from edgedec.records.adapter import SIZES
from edgedec.records.load import LoadOptions
from edgedec.runtimes.coreml.devices import find_devices as devices
from edgedec.runtimes.coreml.model import CoremlModel

__all__ = ["admit", "describe", "devices", "load", "sizes"]


def load(path: Path, options: LoadOptions) -> CoremlModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return CoremlModel.load(path, device=options.device)


def sizes(path: Path) -> dict[str, int]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    facts = Package.open(path).facts
    return {name: facts[name] for name in SIZES if type(facts.get(name)) is int}
