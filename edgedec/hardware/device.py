"""Describes the devices that runtimes can use, and the cores of this process."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from edgedec.hardware import cgroup


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a runtime can compute on.

    Attributes:
        runtime: the adapter's name.
        name: as ``LoadOptions.device`` takes it; ``cpu`` is the processor.
        kind: ``cpu``, ``gpu`` or ``npu``.
        description: the vendor's, with the runtime's version.
        provider: the runtime's execution provider, as ``LoadOptions.providers`` takes it.
        memory_total, memory_free: bytes of its own memory; None if it has none or does not report
            it.

    """

    runtime: str
    name: str
    kind: str
    description: str
    provider: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None


def available_cores() -> int:
    """Return the number of cores this process may use, which may be fewer than the machine has.

    A fraction of a core in a container's share is rounded up; more threads than that would only be
    throttled together when the share is used up.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    share = cgroup.processors()
    return cores if share is None else max(1, min(cores, math.ceil(share)))
