"""Thresholds for looking at and drawing the next token, by dynamic programming over lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Grid = npt.NDArray[np.float64]
_POINTS, _LEAST = 32, 0.005
# Grid of chances that the drafted path is accepted so far, in steps of 19%.
_REACH: _Grid = np.geomspace(_LEAST, 1.0, _POINTS)
_STEP = -math.log(_LEAST) / (_POINTS - 1)
_ROWS = np.arange(_POINTS)
_LOOKAHEAD = 4


@dataclass(frozen=True, slots=True)
class Chain:
    """The optimal thresholds for a chain.

    Attributes:
        peek: by tokens drafted so far, the least chance of reaching the next token at which
            to look at it.
        draw: likewise, the least chance at which to draw it, having looked.
        start: expected tokens that a draft adds to a round, net of their cost.
        first: likewise by bin of the first token, its look apart.

    """

    peek: list[float]
    draw: list[float]
    start: float
    first: list[float]


def chain(
    chances: Sequence[float], met: Sequence[float], steps: Sequence[float], look: float
) -> Chain:
    """Compute backward over draft lengths; a state's value is a function of its reach.

    Drawing token k + 1 on a path of reach x (its own chance included) is worth x - steps[k] plus
    what can follow; looking is worth the mean of that over the bins met, if positive, less the
    look. Both grow with x, so one threshold each is the whole policy; a curve that dips is handled,
    since what follows is included.

    Args:
        chances: of a token to be accepted, by bin of its confidence.
        met: how often each bin is met.
        steps: tokens that the k-th drafted token costs.
        look: tokens that a look costs.

    """
    mean = _mean(np.array(chances), np.array(met) / sum(met))
    drawn = np.empty((len(steps), _POINTS))
    looked = np.empty_like(drawn)
    value: _Grid = np.zeros(_POINTS)
    for k in range(len(steps) - 1, -1, -1):
        np.add(value, _REACH - steps[k], out=drawn[k])
        np.subtract(mean @ np.maximum(drawn[k], 0), look, out=looked[k])
        value = np.maximum(looked[k], 0)
    first = np.interp(chances, _REACH, drawn[0])
    return Chain(_crossings(looked), _crossings(drawn), float(looked[0, -1]), first.tolist())


def tree(steps: Sequence[float]) -> list[float]:
    """Return, by nodes so far, the chance from which one more pays; cheap rows share a step."""
    return [
        min(total / count for count, total in enumerate(itertools.accumulate(ahead), 1))
        for ahead in (steps[k : k + _LOOKAHEAD] for k in range(len(steps)))
    ]


def _mean(chances: _Grid, weights: _Grid) -> _Grid:
    """Return the matrix that maps values by reach to their mean after one more token."""
    below = np.log(np.maximum(chances, 1e-9)) / _STEP
    whole = np.floor(below)
    # On a geometric grid a product is a shift, so a bin's share between points is one number.
    share = np.expm1((below - whole) * _STEP) / np.expm1(_STEP)
    left = _ROWS[:, None] + whole.astype(np.int64)
    share = np.where(left < 0, 0.0, share)
    row = _ROWS[:, None] * _POINTS
    cells = np.concatenate([row + np.maximum(left, 0), row + np.clip(left + 1, 0, _POINTS - 1)])
    parts = np.concatenate([weights * (1 - share), weights * share])
    mean = np.bincount(cells.ravel(), parts.ravel(), _POINTS * _POINTS)
    return mean.astype(np.float64).reshape(_POINTS, _POINTS)


def _crossings(worth: _Grid) -> list[float]:
    """Return, by row, the reach at which a growing function turns positive, inf if never."""
    places = (worth > 0).argmax(axis=1)
    rows = np.arange(len(worth))
    above, below = worth[rows, places], worth[rows, places - 1]
    low, high = _REACH[places - 1], _REACH[places]
    gap = np.where(above > below, above - below, 1.0)
    found = np.where(places == 0, 0.0, low + (high - low) * -below / gap)
    crossings: list[float] = np.where(above > 0, found, math.inf).tolist()
    return crossings
