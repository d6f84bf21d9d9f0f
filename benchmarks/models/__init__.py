"""Models grown from the shipped ones: the same function at the cost of a larger model."""

from __future__ import annotations

import sys
from collections.abc import Callable

from edgedec.errors import EdgedecError


def exit_code(work: Callable[[], None]) -> int:
    """Return what a command of this package exits with; a known error becomes one line."""
    try:
        work()
    except EdgedecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0
