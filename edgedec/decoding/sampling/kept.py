"""Tells from a row's likeliest tokens that the filters keep a token.

What wins among all tokens also wins among any of them that include it. So a row need not be
filtered, which takes several passes over all of its columns, if the token that won without filters
is certain to survive them.
"""

from __future__ import annotations

import math

import numpy as np

from edgedec.decoding.sampling.exponential_clocks import not_below
from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.tree import FloatArray

# Bounds the relative difference between scores in float32 and exact ones, with room to spare.
_ROUNDING = 1e-6
# Likewise of sums of probabilities, beyond what follows from the scores.
_SUMMED = 1e-4
# Bounds scores that float32 holds.
_HUGE = 1e30
# Tokens whose score is this far below the best one's have little of the probability.
_AROUND = 5.0


def surely_kept(
    row: FloatArray, token: int, best: float, scale: np.float32, params: SamplingParams
) -> bool:
    """Return whether ``filters.survivors`` is certain to include a token; False: it has to tell.

    Args:
        row: logits, ``[vocab]`` float32.
        token: its id.
        best: the largest logit.
        scale: the inverse temperature.
        params: the filters.

    """
    factor = float(scale)
    own, first = row.item(token) * factor, best * factor
    # Scores within this may be equal in float32, where the lower id comes first.
    slack = _ROUNDING * (1 + abs(own) + abs(first))
    bar = min(own - slack, first - _AROUND)
    if params.min_p == 1 or not (bar > -_HUGE and first < _HUGE):  # NaN is neither
        return False
    ids = not_below(bar / factor, row)
    if ids is None:
        return False
    scores = sorted([row.item(id) * factor for id in ids], reverse=True)
    # Tokens that may come before this one, itself included.
    rank = sum([score >= own - slack for score in scores])
    scores = scores[: params.top_k or None]
    if rank > len(scores):
        return False
    if params.min_p > 0 and own - first < math.log(params.min_p) + slack:
        return False
    # At most so much lies before the token; what is not counted only adds to the whole.
    weights = [math.exp(score - first) for score in scores]
    before, whole = sum(weights[: rank - 1]), sum(weights)
    return before < params.top_p * whole * (1 - _SUMMED - 2 * slack)
