"""The bytes that a process may hold: the user's limit, or the machine's free memory."""

from __future__ import annotations

from collections.abc import Callable

from edgedec.errors import MemoryBudgetError
from edgedec.hardware import machine
from edgedec.hardware.resident import resident_bytes

AUTO = "auto"
# Left for other programs.
_MARGIN_SHARE, _LEAST_MARGIN = 1 / 16, 32_000_000


def granting(memory: int | str) -> Callable[[], int]:
    """Return a function that returns the bytes granted now.

    Args:
        memory: bytes, or ``AUTO`` for what this process holds and what its machine or control group
            has free, less a margin of a sixteenth.

    """
    return _free if isinstance(memory, str) else lambda: memory


def _free() -> int:
    free = machine.memory().free
    if free is None:
        raise MemoryBudgetError(
            "--memory auto: this system does not say how much memory is free: give a size, such as"
            " --memory 2GB"
        )
    margin = max(_LEAST_MARGIN, int(free * _MARGIN_SHARE))
    return resident_bytes() + max(0, free - margin)
