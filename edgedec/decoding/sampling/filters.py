"""Which tokens survive top-k, top-p and min-p.

All three keep the most likely tokens down to some rank, and no row is ever sorted as a
whole: a partition or a histogram finds the rank, and only what lies around it is sorted.
"""

from __future__ import annotations

import math

import numpy as np

from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.tree import FloatArray, IntArray

# A float32's exponent and three bits of its fraction: buckets an eighth of an octave wide.
_BUCKET_SHIFT = 20


def survivors(scores: FloatArray, params: SamplingParams) -> IntArray:
    """Ids that keep their probability, ascending; ``scores`` are logits over temperature."""
    ids: IntArray | None = None
    if 0 < params.top_k < len(scores):
        ids = largest(scores, params.top_k)
    if params.top_p < 1:
        ids = _within(ids, nucleus(scores if ids is None else scores[ids], params.top_p))
    if params.min_p > 0:
        left = scores if ids is None else scores[ids]
        ids = _within(ids, np.flatnonzero(left >= left.max() + math.log(params.min_p)))
    return np.arange(len(scores)) if ids is None else ids


def _within(ids: IntArray | None, places: IntArray) -> IntArray:
    return places if ids is None else ids[places]


def largest(scores: FloatArray, count: int) -> IntArray:
    """Ids of the ``count`` largest scores, ascending; of equal scores the lower ids.

    Scores of ``-inf`` are never among them.
    """
    size = len(scores)
    least = np.partition(scores, size - count)[size - count] if count < size else -np.inf
    if least == -np.inf:
        return np.flatnonzero(scores > least)[:count]
    ids: IntArray = np.flatnonzero(scores >= least)
    if len(ids) > count:
        equal = np.flatnonzero(scores == least)
        ids = np.setdiff1d(ids, equal[len(equal) - (len(ids) - count) :], assume_unique=True)
    return ids


def ranked(scores: FloatArray, count: int) -> IntArray:
    """Ids of the ``count`` largest scores, best first, equal ones by id."""
    ids = largest(scores, count)
    return ids[np.argsort(-scores[ids], kind="stable")]


def nucleus(scores: FloatArray, top_p: float) -> IntArray:
    """The smallest set of most likely tokens that holds ``top_p``, ascending.

    A histogram over the bits of the probabilities tells in which narrow bucket the last
    token of the set lies; that bucket alone is sorted.
    """
    weights: FloatArray = np.exp(scores - scores.max())
    buckets = weights.view(np.int32) >> _BUCKET_SHIFT
    masses = np.bincount(buckets, weights)[::-1]
    reached = np.cumsum(masses)
    wanted = top_p * float(reached[-1])
    last = int(np.searchsorted(reached, wanted))
    bucket = len(masses) - 1 - last
    inside = np.flatnonzero(buckets == bucket)
    inside = inside[np.argsort(-weights[inside], kind="stable")]
    missing = wanted - float(reached[last] - masses[last])
    needed = 1 + int(np.searchsorted(np.cumsum(weights[inside], dtype=np.float64), missing))
    return np.sort(np.concatenate([np.flatnonzero(buckets > bucket), inside[:needed]]))
