"""Medians with intervals, over runs that come in groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over runs, with its 95% interval (bootstrap over prompts, fixed seed)."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{short(self.middle)} [{short(self.low)}, {short(self.high)}]"


def spread(values: Iterable[tuple[Hashable, float]]) -> Spread | None:
    """Return the median of values and its interval; None if there are none.

    Each value has the prompt that it belongs to: prompts are resampled, and all values of a prompt
    go together, since runs with other seeds of one prompt are not independent.
    """
    groups: dict[Hashable, list[float]] = {}
    for prompt, value in values:
        groups.setdefault(prompt, []).append(value)
    if not groups:
        return None
    found = np.full((len(groups), max(map(len, groups.values()))), np.nan)
    for row, group in zip(found, groups.values(), strict=True):
        row[: len(group)] = group
    picks = np.random.default_rng(0).integers(0, len(found), (_RESAMPLES, len(found)))
    medians = np.nanmedian(found[picks].reshape(_RESAMPLES, -1), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return Spread(float(np.nanmedian(found)), float(low), float(high))


def short(value: float) -> str:
    """Return a number with three digits, or a whole one."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
