"""What a device reaches, measured through llama.cpp's own products."""

from __future__ import annotations

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device, Speed
from edgedec.hardware.speed import CannotCompute, Run, take_speed
from edgedec.runtimes.llamacpp.backends import find_backends
from edgedec.runtimes.llamacpp.products import make_weights, time_products


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    backends = find_backends()
    chosen = [b for b in backends if b.name.lower() == device.name.lower()]
    if not chosen:
        names = ", ".join(backend.name for backend in backends)
        raise RuntimeUnavailable(f"no device {device.name!r} in this llama.cpp: it has {names}")
    (backend,) = chosen
    if not backend.pointer:
        raise RuntimeUnavailable(f"{device.name}: this llama.cpp does not let its products be run")

    def timed(weights: str, count: int, rows: int) -> Run:
        return time_products(backend, threads, make_weights(weights), count, rows)

    try:
        return take_speed(device, timed)
    except CannotCompute as error:
        message = f"{device.name} (llama.cpp) cannot compute a product: {error}"
        raise RuntimeUnavailable(message) from error
