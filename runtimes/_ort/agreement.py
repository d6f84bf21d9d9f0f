"""Checks that a provider computes correctly: the same tokens, in one pass and one by one.

The CPU's kernels do. Another provider's may return keys and values in another order, lose earlier
ones, or compute an operator incorrectly: the text would be nonsense without any error.
"""

from __future__ import annotations

import numpy as np

from edgedec.decoding.tree import FloatArray

_TOKENS = 6
# Difference of two rows' logits relative to their spread: half-precision kernels err by a hundredth
# or two, another row's logits by more than one.
_TOLERANCE = 0.25


def probe_tokens(vocab_size: int, most: int) -> list[int]:
    """Return at most ``most`` tokens to compare on."""
    return [(7 * n + 3) % vocab_size for n in range(min(_TOKENS, most))]


def agree(together: FloatArray, apart: FloatArray, tolerance: float = _TOLERANCE) -> bool:
    """Return whether logits of the same tokens, ``[rows, vocab]``, agree up to rounding."""
    spread = together - together.mean(axis=1, keepdims=True)
    wrong = np.linalg.norm(apart - together, axis=1)
    return bool(np.all(wrong <= tolerance * np.linalg.norm(spread, axis=1)))
