"""Thresholds for peeking at and drawing the next token, by dynamic programming over lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Grid = npt.NDArray[np.float64]
# Grid of chances that the drafted path is accepted so far, in steps of 19%; rows are rarely cheaper
# than the least of them.
_POINTS, _LEAST = 32, 0.005
_REACH: _Grid = np.geomspace(_LEAST, 1.0, _POINTS)
_NOTHING: _Grid = np.zeros(_POINTS)
_STEP = -math.log(_LEAST) / (_POINTS - 1)
# For the mean over the next token: which shift of the grid leads from a point to another, the one
# past the last where none does. All that falls below the grid is put at its first point.
_SHIFTS = np.arange(_POINTS)[:, None] - np.arange(_POINTS)
_SHIFTS[_SHIFTS < 0] = _POINTS
_BETWEEN = math.expm1(_STEP)
# Rows over which a price is shared: kernels take rows by fours at most.
_LOOKAHEAD = 4


@dataclass(frozen=True, slots=True)
class Chain:
    """The optimal thresholds for a chain.

    Attributes:
        peek_at: by tokens drafted so far, the least chance of reaching the next token at which
            to peek at it.
        draw_at: likewise, the least chance at which to draw it, having peeked.
        gain: expected tokens that a draft adds to a round, net of their cost.
        first: likewise by bin of the first token, not counting its peek.

    """

    peek_at: list[float]
    draw_at: list[float]
    gain: float
    first: list[float]


def chain(
    chances: Sequence[float],
    met: Sequence[float],
    steps: Sequence[float],
    peek: float,
    *,
    at_once: bool = False,
) -> Chain:
    """Compute backward over draft lengths; a state's value is a function of its reach.

    Drawing token k + 1 on a path of reach x (its own chance included) is worth x - steps[k] plus
    what can follow; peeking is worth the mean of that over the bins met, if positive, less the
    peek. Both grow with x, so one threshold each is the whole policy; a curve that dips is handled,
    since what follows is included.

    Args:
        chances: of a token to be accepted, by bin of its confidence.
        met: how often each bin is met.
        steps: tokens that the k-th drafted token costs.
        peek: tokens that a peek costs.
        at_once: whether only the first peek costs that, and later ones nothing.

    """
    depth = len(steps)
    mean = _mean(chances, met, peek)
    gains = _REACH - np.array(steps)[:, None]
    worth = np.empty((2, depth, _POINTS))
    peeked, drawn = worth
    value: _Grid = np.zeros(_POINTS)
    # The one more is for the peek.
    paid = np.ones(_POINTS + 1)
    positive = paid[:_POINTS]
    for left, (gain, draw, peek_at) in enumerate(
        zip(gains[::-1], drawn[::-1], peeked[::-1], strict=True), 1
    ):
        np.add(value, gain, out=draw)
        np.maximum(draw, _NOTHING, out=positive)
        if at_once:
            paid[_POINTS] = left == depth
        mean.dot(paid, peek_at)
        np.maximum(peek_at, _NOTHING, out=value)
    crossings = _crossings(worth.reshape(2 * depth, _POINTS))
    first = np.interp(chances, _REACH, drawn[0])
    return Chain(crossings[:depth], crossings[depth:], float(peeked[0, -1]), first.tolist())


def tree(steps: Sequence[float]) -> list[float]:
    """Return, by nodes so far, the chance from which one more pays; cheap rows share a step."""
    return [
        min(total / count for count, total in enumerate(itertools.accumulate(ahead), 1))
        for ahead in (steps[k : k + _LOOKAHEAD] for k in range(len(steps)))
    ]


def _mean(chances: Sequence[float], met: Sequence[float], peek: float) -> _Grid:
    """Return the matrix that maps values by reach, and a 1 after them, to their mean after one more
    token, less the peek: ``[points, points + 1]``.
    """
    shifts, whole = [0.0] * (_POINTS + 1), sum(met)
    for chance, count in zip(chances, met, strict=True):
        # On a geometric grid a product is a shift, so a bin's share between points is one number.
        shift = -math.log(max(chance, 1e-9)) / _STEP
        up = math.ceil(shift)
        share = math.expm1((up - shift) * _STEP) / _BETWEEN
        weight = count / whole
        shifts[min(up, _POINTS)] += weight * (1 - share)
        shifts[min(up - 1, _POINTS)] += weight * share
    mean = np.empty((_POINTS, _POINTS + 1))
    weights = np.array(shifts)
    mean[:, 0] = weights[::-1].cumsum()[:0:-1]
    weights[_POINTS] = 0.0
    mean[:, 1:_POINTS] = weights[_SHIFTS[:, 1:]]
    mean[:, _POINTS] = -peek
    return mean


def _crossings(worth: _Grid) -> list[float]:
    """Return, by row, the reach at which a growing function turns positive, inf if never."""
    indices = (worth > 0).argmax(axis=1)
    rows = np.arange(len(worth))
    above, below = worth[rows, indices], worth[rows, indices - 1]
    low, high = _REACH[indices - 1], _REACH[indices]
    gap = np.where(above > below, above - below, 1.0)
    found = np.where(indices == 0, 0.0, low + (high - low) * -below / gap)
    crossings: list[float] = np.where(above > 0, found, math.inf).tolist()
    return crossings
