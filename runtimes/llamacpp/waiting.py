"""Chooses how long llama.cpp's threads spin while waiting, before the library is loaded.

GNU's OpenMP reads its settings once, when it is loaded. By default a waiting thread spins for
milliseconds before it sleeps. That is best if every thread has a core to itself, and several times
slower if other work competes for the cores, since a spinning thread occupies a core that the thread
it waits for may need.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from edgedec._support.environment import variable
from edgedec.hardware.contention import machine_is_busy

SPIN_COUNT = "GOMP_SPINCOUNT"
# Some microseconds of spinning: enough for threads that arrive on time.
_SHORT = "1000"
_USERS = (SPIN_COUNT, "OMP_WAIT_POLICY")
_MAPS = Path("/proc/self/maps")


def suited_to_the_load() -> AbstractContextManager[None]:
    """Return a context to load OpenMP in, so that on a busy machine its threads spin only briefly.

    The environment is restored afterwards. The user's own settings are kept, and an OpenMP that is
    already loaded cannot be changed any more.
    """
    return variable(SPIN_COUNT, _SHORT if _can_choose() and machine_is_busy() else None)


def _can_choose() -> bool:
    """Return whether GNU's OpenMP may be loaded and the user has not configured it."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _USERS):
        return False
    try:
        return "libgomp" not in _MAPS.read_text("utf-8", "replace")
    except OSError:
        return True
