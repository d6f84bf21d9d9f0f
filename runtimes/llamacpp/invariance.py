"""Tests whether a row's logits are independent of the other rows of its pass.

llama.cpp has kernels for single rows that add in another order: for matrices of floats, and for
attention over many tokens. A token computed together with a copy of itself never uses them.
K-quants have further kernels by the number of rows, which pairs do not avoid; so it is tested.
"""

from __future__ import annotations

import numpy as np

from edgedec.decoding.tree import FloatArray
from edgedec.runtimes.llamacpp.context import Context

_PROMPT_TOKENS, _TEXT_TOKENS = 11, 9
PROBE_CELLS = 32
# How the text is cut into passes; the most likely failures come first.
_CUTS = ((8, 1), (2, 7), (4, 5), (1, 1, 1, 1, 1, 1, 3))


def rows_hold(context: Context) -> bool:
    """Return whether the same tokens give the same bits, however they are cut into passes.

    Args:
        context: empty, and able to remove tokens.

    """
    rng = np.random.default_rng(0)
    size = context.vocab_size
    prompt, text = (rng.integers(0, size, n).tolist() for n in (_PROMPT_TOKENS, _TEXT_TOKENS))
    context.run(prompt, 0, head=False)
    whole = _rows(context, text, (len(text),))
    return all(np.array_equal(_rows(context, text, cut), whole) for cut in _CUTS)


def _rows(context: Context, text: list[int], cut: tuple[int, ...]) -> FloatArray:
    context.remove(0, _PROMPT_TOKENS)
    rows, start = [], 0
    for width in cut:
        context.run(text[start : start + width], _PROMPT_TOKENS + start, head=True)
        rows.append(context.logits(width).copy())
        start += width
    return np.concatenate(rows)
