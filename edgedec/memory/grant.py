"""The bytes that a process may hold: the user's limit, or the machine's free memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

from edgedec.errors import MemoryBudgetError
from edgedec.hardware import machine
from edgedec.hardware.resident import resident_bytes

AUTO = "auto"
# Left for other programs.
_MARGIN_SHARE, _LEAST_MARGIN = 1 / 16, 32_000_000
# Spare memory that the choice of a context leaves: a share of the grant, at least these bytes.
_SPARE_SHARE, _LEAST_SPARE = 1 / 64, 4_000_000


def granting(memory: int | str, *, later: bool = False) -> Callable[[], int]:
    """Return a function that returns the number of bytes granted now.

    Args:
        memory: bytes, or ``AUTO`` for what this process holds and what its machine or control group
            has free, less a margin of a sixteenth.
        later: use half that margin, so that a context chosen with the full margin still fits when
            other programs have taken the other half.

    """
    if not isinstance(memory, str):
        return lambda: memory
    return partial(_free, 0.5 if later else 1.0)


def spare(granted: int) -> int:
    """Return the bytes of a grant to leave free when a context is chosen.

    Later a process holds more than was measured when it opened its models (a tokenizer's cache, a
    server's first requests), and the chosen context must still fit.
    """
    return max(_LEAST_SPARE, int(granted * _SPARE_SHARE))


def with_spare(needed: int) -> int:
    """Return the smallest grant that has this many bytes in addition to its spare ones."""
    return max(needed + _LEAST_SPARE, ceil(needed / (1 - _SPARE_SHARE)))


def _free(margins: float) -> int:
    free = machine.memory().free
    if free is None:
        raise MemoryBudgetError(
            "--memory auto: this system does not say how much memory is free: give a size, such as"
            " --memory 2GB"
        )
    margin = int(margins * max(_LEAST_MARGIN, free * _MARGIN_SHARE))
    return resident_bytes() + max(0, free - margin)
