"""Decides which part of each block stays in memory.

Every block keeps a part, so that reading and computing alternate evenly. While a block computes the
next one is read: of the parts that do not stay, ``WINDOW`` neighbours are in memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec._support.amounts import megabytes
from edgedec.errors import MemoryBudgetError

WINDOW = 2
_STEP = 1 << 16


def streamed_bytes(sizes: Sequence[int], memory: int) -> list[int]:
    """Return the bytes of each block that are read in every pass, as few as the memory allows.

    Args:
        sizes: bytes of the blocks, in the order in which they are computed.
        memory: bytes of weights that may be in memory at once.

    Raises:
        MemoryBudgetError: names the smallest amount that suffices.

    """
    if sum(sizes) <= memory:
        return [0] * len(sizes)
    most = max(sizes)
    least = peak_bytes(sizes, sizes)
    if least > memory:
        raise MemoryBudgetError(
            f"{memory / 1e6:.1f} MB of memory for weights is too little: two neighbouring blocks of"
            f" this model take up to {megabytes(least)} MB, give at least as much"
        )
    low, high = 0, -(-most // _STEP)  # of the part that a block may not keep
    while low < high:
        middle = (low + high) // 2
        if peak_bytes(sizes, _cut(sizes, middle * _STEP)) <= memory:
            high = middle
        else:
            low = middle + 1
    return _cut(sizes, low * _STEP)


def peak_bytes(sizes: Sequence[int], streamed: Sequence[int]) -> int:
    """Return the most bytes that are in memory at once."""
    around = [*streamed, *streamed[: WINDOW - 1]]
    neighbours = max(sum(around[at : at + WINDOW]) for at in range(len(sizes)))
    return sum(sizes) - sum(streamed) + min(neighbours, sum(streamed))


def _cut(sizes: Sequence[int], most: int) -> list[int]:
    return [min(size, most) for size in sizes]
