"""Finds the tokens that can have the largest score with noise, without making all noise.

With Gumbel noise, the token of the largest score is that of the exponential clock that rings
first.

A token wins by a large score, by large noise or by both. Tokens of large noise are listed at once
(``Noise.large_ids``); any other can only win with a score that is at most ``LARGE_FROM`` below the
best sum known so far. Omitted tokens cannot win, so the winner is the same, bit for bit, as with
every token's noise.

Mostly a handful of tokens can win and one of them wins clearly: ``winner`` finds it in Python, by
sums that are exact to ``_ROUNDING``. ``noisy_scores`` decides the other cases by the exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgedec.decoding.noise import CLOSE, LARGE_FROM, SMALL_VOCABULARY, Noise
from edgedec.decoding.tree import FloatArray, IntArray

# With more contenders than this share of the vocabulary the whole row is as fast, and it is kept
# for the next call.
_FEW = 0.1
# Bounds the relative difference between float32 sums and exact ones, with room to spare.
_ROUNDING = 1e-5
# Contenders beyond which numpy is faster than Python; and a bound on scores that float32 holds.
_MANY, _HUGE = 64, 1e30
# How far below the best logit the last contender may be, relative to the last of eight leading
# ones: logits fall about with the logarithm of the rank, so that beyond this there are too many.
_FURTHEST = math.log(_MANY) / math.log(8)


def winner(
    row: FloatArray, scale: np.float32, noise: Noise, ids: Sequence[int], logits: Sequence[float]
) -> int | None:
    """Return the token with the largest score with noise, or None: see ``noisy_scores``.

    Args:
        row: logits, ``[vocab]`` float32.
        scale: the inverse temperature.
        ids: of the row's largest logits, best first, at least one.
        logits: of these.

    """
    factor, about, last = float(scale), noise.about, logits[-1]
    sums = {}
    for token, logit in zip(ids[:2], logits, strict=False):
        sums[token] = logit * factor + about(token)
    bar = _needed(sums, LARGE_FROM) / factor
    if not -_HUGE < bar < _HUGE:  # NaN is neither
        return None
    if last < bar and not math.isnan(sum(logits)):
        for token, logit in zip(ids[2:], logits[2:], strict=True):
            if logit < bar:
                break
            sums[token] = logit * factor + about(token)
    else:
        near = len(ids) == 1 or logits[0] - bar < _FURTHEST * (logits[0] - last)
        tokens = not_below(bar, row) if near else None
        if tokens is None:
            return None
        for token, drawn in zip(tokens, noise.about_all(tokens), strict=True):
            sums[token] = row.item(token) * factor + drawn
    indices = not_below(_needed(sums, noise.most) / factor, row[noise.large_ids])
    if indices is None:
        return None
    for index in indices:
        token = noise.large_ids.item(index)
        sums[token] = row.item(token) * factor + noise.large_about(index)
    return _clear_winner(sums)


def _needed(sums: dict[int, float], noise: float) -> float:
    """Return the least score that may win with so much noise, given the sums known so far."""
    least = max(sums.values())
    return least - noise - _margin(least)


def _margin(total: float) -> float:
    """Return how far a sum of this size may be from that in float32, with room to spare."""
    return _ROUNDING * (abs(total) + LARGE_FROM + 1)


def not_below(bar: float, scores: FloatArray) -> list[int] | None:
    """Return the indices of scores that are not below ``bar``, or NaN; None if there are many."""
    below = np.less(scores, bar).tobytes()  # in which a byte is found sooner than in an array
    indices: list[int] = []
    index = below.find(0)
    while index >= 0:
        if len(indices) == _MANY:
            return None
        indices.append(index)
        index = below.find(0, index + 1)
    return indices


def _clear_winner(sums: dict[int, float]) -> int | None:
    """Return the token of the largest sum; None if rounding might decide, or a sum is NaN."""
    if math.isnan(sum(sums.values())):
        return None
    token = max(sums, key=sums.__getitem__)
    first = sums.pop(token)
    return token if first - max(sums.values(), default=-math.inf) > 2 * _margin(first) else None


def noisy_scores(
    row: FloatArray, scale: np.float32, noise: Noise, likely: Sequence[int] | IntArray, count: int
) -> tuple[IntArray | None, FloatArray]:
    """Return scores with noise, including those of the ``count`` best tokens.

    Args:
        row: logits, ``[vocab]`` float32.
        scale: the inverse temperature; scores are ``row * scale`` in float32.
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
    least -= _margin(least)
    loses = row < (least - LARGE_FROM) / float(scale)
    may_win = np.logical_not(loses, out=loses)  # so that NaN may win
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
    sums = [float(row[token] * scale) + noise.about(token) - CLOSE for token in tried]
    return sorted(sums)[-count]
