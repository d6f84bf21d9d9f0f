"""Finds the tokens that can have the largest score with noise, without making all noise.

A token wins by a large score, by large noise or by both. Tokens of large noise are listed at once
(``Noise.large_ids``); any other can only win with a score that is at most ``LARGE_FROM`` below the
best sum known so far. Omitted tokens cannot win, so the winner is the same, bit for bit, as with
every token's noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgedec.decoding.randomness import LARGE_FROM, SMALL_VOCABULARY, Noise
from edgedec.decoding.tree import FloatArray, IntArray

# With more contenders than this share of the vocabulary the whole row is as fast, and it is kept
# for the next call.
_FEW = 0.1
# Bounds the relative difference between float32 sums and exact ones, with room to spare.
_ROUNDING = 1e-5


def race(
    row: FloatArray, scale: np.float32, noise: Noise, likely: Sequence[int] | IntArray, count: int
) -> tuple[IntArray | None, FloatArray]:
    """Return scores with noise, including those of the ``count`` best tokens.

    Args:
        row: logits, ``[vocab]`` float32.
        scale: the inverse temperature; scores are ``row * scale`` in float32.
        noise: of the position.
        likely: distinct ids with large scores; the larger, the fewer contenders are left.
        count: how many of the best are asked for, 1 or more.

    Returns:
        Ids, ascending (None: all), and the sums, ``[len(ids)]`` float32; of a lone contender
        the score alone. Where the row has NaN so do they.

    """
    if len(row) <= SMALL_VOCABULARY:
        return None, row * scale + noise.all()
    ids = noise.large_ids
    large = row[ids] * scale + noise.large
    least = max(_least(large, count), _least_of_likely(row, scale, noise, likely, count))
    least -= _ROUNDING * (abs(least) + LARGE_FROM + 1)
    hopeless = row < (least - LARGE_FROM) / float(scale)
    may_win = np.logical_not(hopeless, out=hopeless)  # so that NaN may win
    may_win[ids] = False
    small_ids = may_win.nonzero()[0]
    if not len(small_ids) < _FEW * len(row):
        return None, row * scale + noise.all()
    able = np.logical_not(large < least)
    scores = row[small_ids] * scale
    if able.any():
        ids = np.concatenate([ids[able], small_ids])
        sums = np.concatenate([large[able], scores + noise.small(small_ids)])
        order = np.argsort(ids)
        return ids[order], sums[order]
    if len(small_ids) > 1:
        scores += noise.small(small_ids)
    return small_ids, scores


def _least(sums: FloatArray, count: int) -> float:
    """Return the ``count``-th largest; -inf if there are fewer."""
    if len(sums) < count:
        return -math.inf
    return float(sums.max() if count == 1 else np.partition(sums, -count)[-count])


def _least_of_likely(
    row: FloatArray, scale: np.float32, noise: Noise, likely: Sequence[int] | IntArray, count: int
) -> float:
    """Return a lower bound on the ``count``-th largest sum of the likely tokens."""
    tried = [int(token) for token in likely[: count + 1]]
    if len(tried) < count:
        return -math.inf
    sums = [float(row[token] * scale) + noise.at_least(token) for token in tried]
    return sorted(sums)[-count]
