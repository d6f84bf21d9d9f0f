"""Tells that a draft failed, which costs speed and nothing else."""

from __future__ import annotations

import logging

from edgedec._support.fields import printable
from edgedec.errors import EdgedecError


def log_failure(error: BaseException) -> None:
    """Warn once that the draft failed; the text continues without it."""
    message = printable((str(error) or type(error).__name__)[:200])
    known = error if not isinstance(error, EdgedecError) else None
    logging.getLogger("edgedec").warning(
        "the draft failed, going on without it: %s", message, exc_info=known
    )
