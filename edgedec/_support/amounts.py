"""Formats bytes for people, rounded up so that the amount named is enough."""

from __future__ import annotations


def megabytes(count: int) -> str:
    """Return bytes in megabytes, with a tenth."""
    return f"{-(-count // 10**5) / 10:.1f}"


def size(count: int) -> str:
    """Return bytes in megabytes, or in gigabytes from one on, with the unit."""
    if count >= 10**9:
        hundredths = -(-count // 10**7)
        return f"{hundredths / 100:.2f} GB"
    return f"{megabytes(count)} MB"
