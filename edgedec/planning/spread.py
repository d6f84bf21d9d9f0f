"""Estimates how far the speed on another text may lie from a plan's prediction.

A plan is made on a few texts, and texts differ. The estimate is leave-one-out: the plan that the
other texts lead to is chosen, and its predicted speed is compared with its speed on the text left
out. The logarithms of these ratios are assumed to be normally distributed, and the interval is a
prediction interval (Student, 1908), which combines the spread between texts with the error of
measurement and replay.

A few texts say little about their spread, so the usual spread counts as much as two more texts (a
conjugate prior of the variance).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from edgedec.planning.estimate import Estimate
from edgedec.records.plan import Candidate, Plan

# Share of other texts that an interval should contain.
LEVEL = 0.9
# Standard deviation of the log of speed between texts for a plan that drafts: 0.12 to 0.41 by
# drafter and kind of text, with the pair that ships.
_USUAL, _WORTH = 0.25, 2
# Log of a replayed speed over the measured one on the same texts, root mean square over the
# twelve fastest plans of each of two pairs (docs/measurements/planner.jsonl).
REPLAY = 0.07
# Quantiles of Student's distribution that leave (1 - LEVEL) / 2 above them, by degrees of
# freedom from 1 to 20; beyond, the distance to the normal distribution's falls as 1 / degrees.
_STUDENT = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
)  # fmt: skip
_NORMAL = 1.645


_FOLLOWED = 0.05


@dataclass(frozen=True, slots=True)
class WeighedCandidate:
    """A candidate and the figures behind it.

    Attributes:
        candidate: as the decision lists it.
        context: its context length in tokens.
        estimate: its average round by formula; None if it is refused.
        uncertainty: relative error of its speed-up over plain decoding, on another text.
        measured: the part of ``uncertainty`` that is due to pass times.

    """

    candidate: Candidate
    context: int
    estimate: Estimate | None = None
    uncertainty: float = 0.0
    measured: float = 0.0

    @property
    def margin(self) -> float:
        """Relative speed-up over plain decoding that it must exceed to be chosen.

        A length decided each round falls back to plain decoding where drafts do not pay; a fixed
        one relies on the prediction alone.
        """
        if self.plan.draft_length is None:
            return min(self.uncertainty, _FOLLOWED)
        return self.uncertainty

    @property
    def plan(self) -> Plan:
        """The candidate's plan."""
        return self.candidate.plan

    @property
    def rate(self) -> float:
        """Predicted tokens per second."""
        return self.candidate.prediction.tokens_per_second


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of other texts around a prediction, in the logarithm of speed.

    Attributes:
        shift: mean of actual minus predicted log speed.
        between: standard deviation between texts.
        texts: number of texts it is estimated from.

    """

    shift: float
    between: float
    texts: int

    def interval(self, rate: float, measured: float) -> tuple[float, float]:
        """Return the interval of tokens per second that should contain ``LEVEL`` of other texts.

        Args:
            rate: predicted tokens per second.
            measured: relative standard deviation of the measurements.

        """
        next_one = self.between * math.sqrt(1 + 1 / max(self.texts, 1))
        wide = student(_WORTH + max(self.texts - 1, 0)) * math.hypot(next_one, measured)
        return rate * math.exp(self.shift - wide), rate * math.exp(self.shift + wide)


def between_texts(chosen: WeighedCandidate, looked: Sequence[WeighedCandidate]) -> Spread:
    """Return the leave-one-out spread of texts around predictions.

    Args:
        chosen: the plan in question.
        looked: all plans replayed on the same texts, ``chosen`` among them. If ``chosen`` drafts,
            only plans that draft compete; otherwise only plain ones do.

    """
    count = len(chosen.candidate.prediction.texts)
    # Plain decoding takes the same time for any text.
    usual = 0.0 if chosen.plan.plain else _USUAL
    rivals = [
        one
        for one in looked
        if one.plan.plain == chosen.plan.plain and len(one.candidate.prediction.texts) == count
    ]
    errors = [_left_out(place, rivals) for place in range(count)] if count > 1 else []
    shift = fmean(errors) if errors else 0.0
    squares = _WORTH * usual**2 + sum((error - shift) ** 2 for error in errors)
    freedom = _WORTH + max(len(errors) - 1, 0)
    return Spread(shift, math.sqrt(squares / freedom), count)


def _left_out(place: int, rivals: Sequence[WeighedCandidate]) -> float:
    """Return the log of a text's speed over the prediction of the plan made on the other texts."""

    def promised(one: WeighedCandidate) -> float:
        rates = one.candidate.prediction.texts
        return 1 / fmean(1 / rate for n, rate in enumerate(rates) if n != place)

    best = max(rivals, key=promised)
    return math.log(best.candidate.prediction.texts[place] / promised(best))


def student(freedom: int) -> float:
    """Return the quantile of Student's distribution for a two-sided interval of ``LEVEL``."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    last = len(_STUDENT)
    return _NORMAL + (_STUDENT[-1] - _NORMAL) * last / freedom


def interval(chosen: WeighedCandidate, looked: Sequence[WeighedCandidate]) -> tuple[float, float]:
    """Return the interval of tokens per second that should contain ``LEVEL`` of other texts.

    Args:
        chosen, looked: see ``between_texts``.

    """
    measured = math.hypot(chosen.measured, REPLAY)
    return between_texts(chosen, looked).interval(chosen.rate, measured)


def with_texts(weighed: WeighedCandidate) -> WeighedCandidate:
    """Return a replayed plan whose uncertainty includes the spread between its texts.

    That spread replaces the sampling error of the formula, which it contains.
    """
    if not weighed.candidate.prediction.texts:
        return weighed
    between = between_texts(weighed, [weighed]).between
    return dataclasses.replace(weighed, uncertainty=math.hypot(weighed.measured, between))
