"""Facts about the machine this process runs on."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores this process may use, which is not always all the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
