"""What a device reaches, measured through the runtime."""

from __future__ import annotations

from edgedec.errors import RuntimeUnavailable
from edgedec.placement.device import Device, Speed


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    raise RuntimeUnavailable(f"{device.name}: cannot be measured yet")
