"""Reads and formats bytes, rounded up so that the amount named is enough, and speeds."""

from __future__ import annotations

import re

from edgedec.errors import InputError

# A number without a unit means gigabytes up to this, else megabytes, if it is too small for bytes.
_MANY_GB = 128
# No model runs in fewer bytes; the command line, where more units are left out, expects more.
_FEWEST = 1000
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def in_bytes(text: str) -> int | None:
    """Return the bytes of a size such as 512MB, 1.5GiB or 300000; None if it is not one."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def meant(number: str) -> str:
    """Return the size that somebody meant by a number that is too small for bytes."""
    return f"{number}{'GB' if float(number) < _MANY_GB else 'MB'}"


def given_bytes(name: str, value: object, also: str = "") -> int:
    """Return the bytes that an option of this name gives.

    Args:
        value: a number of bytes, or a size as ``"2GB"``.
        also: what else it may be, for the message.

    Raises:
        InputError: it is neither, or so small that it was not meant as bytes.

    """
    found = in_bytes(value) if isinstance(value, str) else value
    if type(found) is not int:
        expected = f"expected a size such as 2GB{also}"
        raise InputError(f"{name} is {value!r:.60}: {expected}, or a number of bytes")
    number = str(value).strip()
    if 0 < found < _FEWEST and number.isdecimal():
        raise InputError(f"{name} is {value!r:.60}, in bytes: did you mean {meant(number)!r}?")
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
