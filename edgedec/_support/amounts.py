"""Reads and formats bytes, rounded up so that the amount named is enough, and speeds."""

from __future__ import annotations

import re

from edgedec.errors import InputError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def in_bytes(text: str) -> int | None:
    """Return the bytes of a size such as 512MB, 1.5GiB or 300000; None if it is not one."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def given_bytes(name: str, value: int | str, also: str = "") -> int:
    """Return the bytes that an option of this name gives; InputError for a text that is no size."""
    found = in_bytes(value) if isinstance(value, str) else value
    if found is None:
        raise InputError(f"{name} is {value!r:.60}: expected a size such as 2GB{also}")
    return found


def megabytes(count: int) -> str:
    """Return bytes in megabytes, with a tenth."""
    return f"{-(-count // 10**5) / 10:.1f}"


def size(count: int) -> str:
    """Return bytes in megabytes, or in gigabytes from one on, with the unit."""
    if count >= 10**9:
        hundredths = -(-count // 10**7)
        return f"{hundredths / 100:.2f} GB"
    return f"{megabytes(count)} MB"


def speed(tokens_per_second: float) -> str:
    """Return tokens per second, with a decimal for small numbers."""
    return f"{tokens_per_second:.{1 if tokens_per_second < 20 else 0}f}"
