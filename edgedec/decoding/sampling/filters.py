"""Which tokens survive top-k, top-p and min-p.

All three keep the most likely tokens up to some rank, so a row is sorted only as far as
the rank can reach.
"""

from __future__ import annotations

import math

import numpy as np

from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.tree import FloatArray, IntArray

_FIRST_LOOK = 256


def survivors(scores: FloatArray, params: SamplingParams) -> IntArray:
    """Ids that keep their probability, ascending; ``scores`` are logits over temperature."""
    size = len(scores)
    top_k = min(params.top_k, size) if params.top_k else size
    if params.top_p < 1:
        return _nucleus(scores, top_k, params)
    ids = largest(scores, top_k)
    if params.min_p > 0:
        ids = ids[scores[ids] >= scores[ids].max() + math.log(params.min_p)]
    ids.sort()
    return ids


def largest(scores: FloatArray, count: int) -> IntArray:
    """Ids of the ``count`` largest scores, in no order; of equal ones the lower ids.

    Scores of ``-inf`` are never among them.
    """
    size = len(scores)
    if count < size:
        least = np.partition(scores, size - count)[size - count]
    else:
        least = np.float32(-np.inf)
    ids: IntArray = np.flatnonzero(scores >= least)
    if least == -np.inf:
        ids = np.flatnonzero(scores > least)
    if len(ids) > count:
        equal = np.flatnonzero(scores == least)
        ids = np.concatenate([np.flatnonzero(scores > least), equal])[:count]
    return ids


def ranked(scores: FloatArray, count: int) -> IntArray:
    """Ids of the ``count`` largest scores, best first, equal ones by id."""
    ids = np.sort(largest(scores, count))
    return ids[np.argsort(-scores[ids], kind="stable")]


def _nucleus(scores: FloatArray, top_k: int, params: SamplingParams) -> IntArray:
    """Top-p among the ``top_k`` best, then min-p."""
    best = scores.max()
    look = min(top_k, _FIRST_LOOK)
    total = None if top_k < len(scores) else float(np.exp(scores - best).sum())
    while True:
        ids = ranked(scores, look)
        chances = np.exp(scores[ids] - best).astype(np.float64)
        reached = np.cumsum(chances)
        wanted = params.top_p * (reached[-1] if look == top_k or total is None else total)
        if (total is not None and reached[-1] >= wanted) or look == top_k:
            break
        look = top_k
    kept = min(int(np.searchsorted(reached, wanted)) + 1, len(ids))
    ids = ids[:kept]
    if params.min_p > 0:
        ids = ids[scores[ids] >= best + math.log(params.min_p)]
    ids.sort()
    return ids
