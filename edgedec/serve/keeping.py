"""How long a model stays loaded after its last answer: Ollama's ``keep_alive``."""

from __future__ import annotations

import math
import re
from typing import Any

from edgedec.errors import InputError

# As Ollama's; also how ``--keep-alive`` is written.
DEFAULT_S = 300.0
EXPECTED = "seconds, a duration such as 5m or 1h30m, 0 to drop the model at once, or -1 for ever"
FOR_EVER = math.inf
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d{1,12}(?:\.\d{0,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_WHOLE = re.compile(rf"(-?)((?:{_PART.pattern})+|\d{{1,12}}(?:\.\d{{0,12}})?)", re.ASCII)


def seconds(value: Any) -> float:
    """Return a duration in seconds; a negative one is ``FOR_EVER``.

    Args:
        value: a number of seconds, or a text as Go writes durations (``5m``, ``1h30m``, ``-1``).

    Raises:
        InputError: it is neither.

    """
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise InputError(f"keep_alive: expected {EXPECTED}, got {value!r:.60}")
    return FOR_EVER if value < 0 else _within(value)


def _of_text(value: str) -> float:
    found = _WHOLE.fullmatch(value.strip()) if len(value) <= 64 else None
    if found is None:
        raise InputError(f"keep_alive: expected {EXPECTED}, got {value!r:.60}")
    if found[1]:
        return FOR_EVER
    parts = _PART.findall(found[2])
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return _within(total if parts else float(found[2]))


def _within(value: float) -> float:
    # Longer than any server runs, and more than the clocks of event loops hold.
    return FOR_EVER if value > 1e9 else float(value)
