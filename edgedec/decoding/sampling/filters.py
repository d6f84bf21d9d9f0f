"""Filters tokens by top-k, top-p and min-p.

All three keep the most likely tokens down to some rank, which is found without sorting the whole
row.
"""

from __future__ import annotations

import math

import numpy as np

from edgedec.decoding.params import SamplingParams
from edgedec.decoding.ranking import best_among
from edgedec.decoding.tree import FloatArray, IntArray


def survivors(scores: FloatArray, params: SamplingParams) -> IntArray:
    """Return the ids that keep their probability, ascending; ``scores`` are logits over
    temperature.

    None are left if the scores are NaN.
    """
    ids: IntArray | None = None
    if 0 < params.top_k < len(scores):
        ids = largest(scores, params.top_k)
        if not len(ids):
            return ids
    if params.top_p < 1:
        ids = _within(ids, nucleus(scores if ids is None else scores[ids], params.top_p))
    if params.min_p > 0:
        left = scores if ids is None else scores[ids]
        ids = _within(
            ids, np.flatnonzero(left >= left.max(initial=-np.inf) + math.log(params.min_p))
        )
    return np.arange(len(scores)) if ids is None else ids


def _within(ids: IntArray | None, indices: IntArray) -> IntArray:
    return indices if ids is None else ids[indices]


def largest(scores: FloatArray, count: int) -> IntArray:
    """Return the ids of the ``count`` largest scores, ascending; of equal scores the lower ids.

    Scores of ``-inf`` are never among them.
    """
    if count < 1:
        return np.zeros(0, np.int64)
    found = best_among(scores, count)
    if found is None:
        return _largest(scores, count)
    return found[_largest(scores[found], count)]


def _largest(scores: FloatArray, count: int) -> IntArray:
    size = len(scores)
    least = np.float32(-np.inf)
    if count < size:
        least = np.partition(scores, size - count)[size - count]
    if least == -np.inf:
        return np.flatnonzero(scores > least)[:count]
    return _down_to(scores, least, count)


def ranked(scores: FloatArray, count: int) -> IntArray:
    """Return the ids of the ``count`` largest scores, best first, equal ones by id."""
    ids = largest(scores, count)
    return ids[np.argsort(-scores[ids], kind="stable")]


def nucleus(scores: FloatArray, top_p: float) -> IntArray:
    """Return the smallest set of most likely tokens that holds ``top_p``, ascending."""
    weights: FloatArray = np.exp(scores - scores.max())
    total = float(weights.sum())
    # All tokens below this together hold less than 1 - top_p. Few tokens of a language model's row
    # remain; the factor keeps rounding on the safe side.
    ids = np.flatnonzero(weights >= 0.999 * (1 - top_p) * total / len(weights))
    left = weights[ids]
    ordered = np.sort(left)[::-1]
    reached = np.cumsum(ordered, dtype=np.float64)
    needed = 1 + int(np.searchsorted(reached, top_p * total))
    if needed >= len(ids):
        return ids
    return ids[_down_to(left, ordered[needed - 1], needed)]


def _down_to(scores: FloatArray, least: np.float32, count: int) -> IntArray:
    """Return the ``count`` largest, given the smallest of them; of equal ones the lower indices."""
    indices: IntArray = np.flatnonzero(scores >= least)
    if len(indices) > count:
        equal = np.flatnonzero(scores == least)
        surplus = equal[len(equal) - (len(indices) - count) :]
        indices = np.setdiff1d(indices, surplus, assume_unique=True)
    return indices
