"""Formats bytes for people, rounded up so that the amount named is enough, and speeds."""

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


def speed(tokens_per_second: float) -> str:
    """Return tokens per second, with a decimal for small numbers."""
    return f"{tokens_per_second:.{1 if tokens_per_second < 20 else 0}f}"
