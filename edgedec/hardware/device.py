"""Facts about the machine this process runs on, and the devices its runtimes can use."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from edgedec.hardware import cgroup


@dataclass(frozen=True, slots=True)
class Device:
    """Something a runtime can compute on.

    Attributes:
        runtime: the adapter's name.
        name: as ``LoadOptions.device`` takes it; ``cpu`` is the processor.
        kind: ``cpu``, ``gpu`` or ``npu``.
        description: the maker's, with the runtime's version.
        provider: the runtime's execution provider, as ``LoadOptions.providers`` takes it.
        memory_total, memory_free: bytes of its own memory; None where it has none of its own
            or does not say.

    """

    runtime: str
    name: str
    kind: str
    description: str
    provider: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """What a device reaches, measured with products as decoding has them.

    Attributes:
        bytes_per_second: of weights read by a product with one row.
        flops: multiplications and additions a second of a product with many rows.
        weights: in which both were taken: ``f32``, ``f16``, or what the device can.
        int4_bytes_per_second, int4_flops: the same with weights of four bits, where the device
            has such a product.

    """

    bytes_per_second: float
    flops: float
    weights: str = "f32"
    int4_bytes_per_second: float | None = None
    int4_flops: float | None = None


def available_cores() -> int:
    """Cores this process may use, which is not always all the machine has.

    Of a container's share a part of a core counts as one: more threads than that would only
    be stopped together when the share is used up.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    share = cgroup.processors()
    return cores if share is None else max(1, min(cores, math.ceil(share)))
