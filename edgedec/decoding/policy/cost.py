"""Costs of passes, rounds and prefill, measured at load and corrected while decoding; the stake."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from edgedec.decoding.pass_times import FURTHER_ROW, Budget, Times, time_passes
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.session import Session
from edgedec.errors import InputError

# Rows to measure, most important first: powers of two, where kernels have their steps, then what
# rounds of up to 16 drafted tokens have. Others are interpolated.
WIDTHS = (1, 2, 4, 8, 3, 6, 17, 5, 12, 7, 9)

# Tokens cached while measuring. Few, to be quick: a longer context slows all widths about alike,
# which the slowdown follows.
_CONTEXT = 32
# Sweeps agree if their sums differ by no more than this factor, the noise of an idle machine.
_AGREE = 1.1
# Agreeing sweeps to end with, since two may be disturbed alike.
_SWEEPS = 3
# Measured: kernels that take rows by fours need up to 1.3 times as long for three rows as for four.
_TILED = 1.4
# Rounds that medians cover: 15 for a width and a drafter, 7 for the slowdown, which changes faster.
# Odd, so that the median is one of the values.
LONG, _SHORT = 15, 7


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of a pass by its number of rows, as measured: not linear, not even monotone.

    Attributes:
        widths: rows, ascending.
        seconds: of a pass with so many rows.
        steady: False when the machine was too busy for sweeps to agree.

    """

    widths: tuple[int, ...]
    seconds: tuple[float, ...]
    steady: bool = True

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.widths, self.widths[1:], strict=False))
        fits = len(self.widths) == len(self.seconds) > 0 and min(self.seconds) > 0
        if not (ascending and fits):
            raise InputError("a cost curve: expected ascending widths, each with its seconds")

    def at(self, rows: int) -> float:
        """Return the seconds of a pass over ``rows`` rows, interpolated between measured widths."""
        widths, seconds = self.widths, self.seconds
        index = bisect_left(widths, rows)
        if index < len(widths) and widths[index] == rows:
            return seconds[index]
        if index == 0 or len(widths) == 1:
            return seconds[0]
        right = min(index, len(widths) - 1)
        slope = (seconds[right] - seconds[right - 1]) / (widths[right] - widths[right - 1])
        if index == len(widths):
            slope = max(slope, 0.0)  # beyond the curve nothing gets cheaper
        return seconds[right] + slope * (rows - widths[right])


def calibrate(
    session: Session,
    widths: Sequence[int] = WIDTHS,
    budget_s: float = 0.5,
    clock: Callable[[], float] = perf_counter,
) -> CostCurve:
    """Measure passes of a session, which is left as it was.

    Sweeps over all widths are repeated until three agree with the quickest to 10%, or the budget is
    spent. Other work on the machine can only add to a pass, so a width's figure is its quickest
    pass; and where all of a width's passes were disturbed, it is held to what wider ones show.

    Args:
        session: with room for a short context and the widest pass; wider ones are left out.
        widths: rows to measure, most important first: as many as three sweeps within the budget
            allow, at least four.
        budget_s: seconds after which no further sweep begins; one always runs.

    """
    base = session.length
    context = min(_CONTEXT, max(0, session.capacity - base - max(widths)))
    widths = [width for width in widths if base + context + width <= session.capacity]
    if not widths:
        raise InputError(f"calibration: the session's {session.capacity} tokens are in use")
    session.prefill([0] * context)
    try:
        found = time_passes(
            session, widths, Budget(budget_s), lambda found: _agreeing(found) >= _SWEEPS,
            clock=clock,
        )  # fmt: skip
    finally:
        session.rollback(base)
    quickest = [min(one.seconds for one in times) for times in found.values()]
    return CostCurve(tuple(found), plausible(quickest), _agreeing(found) >= _SWEEPS)


def _agreeing(found: Times) -> int:
    """Return the number of sweeps that agree with the quickest."""
    sweeps = [sum(one.seconds for one in sweep) for sweep in zip(*found.values(), strict=True)]
    best = min(sweeps)
    return sum(sweep <= _AGREE * best for sweep in sweeps)


def plausible(seconds: Sequence[float]) -> tuple[float, ...]:
    """Lower a pass that is far slower than a wider one."""
    least, found = float("inf"), []
    for one in reversed(seconds):
        found.append(min(one, _TILED * least))
        least = min(least, one)
    return tuple(reversed(found))


class RunningMedian:
    """The median of the last few values: an outlier, however large, shifts it by one rank."""

    __slots__ = ("_ascending", "_recent", "value")

    def __init__(self, size: int, start: Sequence[float]) -> None:
        self._recent = deque(start, maxlen=size)
        self._ascending = sorted(self._recent)
        self.value = median(start)

    def add(self, value: float) -> None:
        """Replace the oldest value by this one."""
        recent, ascending = self._recent, self._ascending
        if len(recent) == recent.maxlen:
            del ascending[bisect_left(ascending, recent[0])]
        recent.append(value)
        insort(ascending, value)
        self.value = ascending[len(ascending) // 2]


# The speed is averaged over about 30 rounds, as the gain of drafts is: a change of text shows.
_ROUNDS_FORGET = 0.97
# The average begins with as many plain rounds.
_PLAIN_ROUNDS = 5.0


class LiveCost:
    """A cost curve that follows the machine, and the tokens that a second is worth.

    One scale is for the machine's slowdown and the context's growth, and one correction for each
    width; a width without recent passes follows the scale.

    Args:
        most: most drafted tokens of a round.

    """

    def __init__(self, curve: CostCurve, most: int) -> None:
        self._base = [curve.at(max(rows, 1)) for rows in range(most + 2)]
        # The scale is updated first: otherwise a slowdown of all passes would count against the
        # current width, and the others would look cheap in comparison.
        self._own = [RunningMedian(LONG, [1.0, 1.0, 1.0]) for _ in self._base]
        self._scale = RunningMedian(_SHORT, [1.0, 1.0])
        # Seconds of a round outside the models, without a draft and with one.
        self._outside = RunningMedian(LONG, [0.0]), RunningMedian(LONG, [0.0])
        # Recent tokens and their seconds.
        self._tokens, self._seconds = _PLAIN_ROUNDS, _PLAIN_ROUNDS * self.at(1)

    @property
    def slowdown(self) -> float:
        """Current pass time relative to calibration."""
        return self._scale.value

    @property
    def plain_s(self) -> float:
        """Seconds of a round without a draft."""
        return self.at(1) + self._outside[0].value

    @property
    def price(self) -> float:
        """Tokens that a second is worth: current speed, at least plain decoding's."""
        return max(self._tokens / self._seconds, 1 / self.plain_s)

    def at(self, rows: int) -> float:
        """Return the current estimate of the seconds of a pass over ``rows`` rows."""
        return self._base[rows] * self._own[rows].value * self._scale.value

    def steps(self) -> list[float]:
        """Return the seconds that each further row of a draft adds to a round."""
        scale, before, steps = self._scale.value, self.at(1), []
        for base, own in zip(self._base[2:], self._own[2:], strict=True):
            seconds = base * own.value * scale
            steps.append(seconds - before)
            before = seconds
        steps[0] += max(0.0, self._outside[1].value - self._outside[0].value)
        return steps

    def took(self, rows: int, seconds: float) -> None:
        """Learn from a pass."""
        if rows < len(self._base) and seconds > 0:
            ratio, own = seconds / self._base[rows], self._own[rows]
            self._scale.add(ratio / own.value)
            if rows > 1:  # the scale is that of single rows
                own.add(ratio / self._scale.value)

    def observe(self, record: RoundRecord, peeks_s: float) -> float:
        """Learn from a round with ``peeks_s`` seconds of peeks; return the seconds it usually
        takes.

        The result is modelled, not measured, so that one long pause does not look like a slow
        policy.
        """
        self.took(record.rows, record.target_s)
        outside = self._outside[record.drafted > 0]
        outside.add(record.total_s - record.target_s - record.draft_s)
        seconds = self.at(min(record.rows, len(self._base) - 1)) + peeks_s + outside.value
        self._tokens = _ROUNDS_FORGET * self._tokens + record.emitted
        self._seconds = _ROUNDS_FORGET * self._seconds + seconds
        return seconds


# Prefills that a median covers; a text's expected tokens at first, and the rate at which they are
# learned: about the last four texts.
_PREFILLS, _EXPECTED, _LENGTH_RATE = 9, 64.0, 0.25
# Tokens per round that may be spent on a prefill that the estimates do not justify, as on probes.
_ALLOWANCE = 0.002


class CatchUp:
    """Decides whether a draft model that lags behind should prefill the text.

    It weighs the cost of prefilling, which plain decoding does not need, against the tokens to be
    gained in the rest of the text. ``tokens`` are those prefilled in this round.
    """

    def __init__(self, draft_s: float) -> None:
        self._token_s = RunningMedian(_PREFILLS, [FURTHER_ROW * draft_s])
        self._credit, self._expected, self._done = 0.0, _EXPECTED, 0
        self.begin(1 << 30)

    def begin(self, remaining: int) -> None:
        """Begin another text of at most ``remaining`` tokens."""
        if self._done:
            self._expected += _LENGTH_RATE * (self._done - self._expected)
        self._remaining, self._done, self.tokens = remaining, 0, 0

    def round(self, emitted: int) -> None:
        self._done += emitted
        self._credit += _ALLOWANCE

    def took(self, seconds: float) -> None:
        """Learn how long this round's prefill took."""
        self._token_s.add(max(0.0, seconds) / self.tokens)

    def pays(self, behind: int, gain: float, rate: float) -> bool:
        """Return whether to prefill tokens for a drafter that adds ``gain`` tokens to a round.

        ``rate``: tokens per second of plain decoding.
        """
        cost = rate * behind * self._token_s.value
        # A text is expected to go on for as long as it has lasted.
        rounds = min(self._remaining - self._done, max(self._expected - self._done, self._done))
        if gain * rounds > cost:
            return True
        if self._credit < cost:
            return False
        self._credit -= cost
        return True


# Tokens that a text's drafts may lose in all, and what each round adds: 1.1 in 64 rounds. Chosen by
# replayed texts of published models: with less, predictable texts gain less where rows are dear.
_FIRST, _PER_ROUND = 0.75, 0.005
# As much more after a text that gained by its drafts: else two unlucky ones at its beginning end
# the drafts of a model that has proved itself.
_MOST = 2 * _FIRST
# Share that counts of what drafts that were not afforded would have gained or lost, and the most
# tokens of it: the text shows that as well, but it pays for nothing.
_UNPLAYED, _MOST_UNPLAYED = 0.5, 1.0


class Stake:
    """Lets a draft be made only where the text can pay for it if none of it is accepted.

    A text begins with a small amount in tokens, and each round adds to it what it gained over plain
    decoding, or takes what it lost. Estimates err most in the first rounds of a text, and where a
    further row costs as much as a token, two wrong drafts are a noticeable share of a short one. A
    token that would have been drafted is still compared with the text, so that a text that has
    become predictable is soon drafted.
    """

    def __init__(self) -> None:
        self._losses: Sequence[float] = ()
        self._balance = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin another text, with what the last one had left, as little and as much as stated."""
        self._balance = min(max(self._balance, _FIRST), _MOST)
        self._unplayed = 0.0
        self._passed: tuple[int, float] | None = None

    def prices(self, steps: Sequence[float]) -> None:
        """Set the tokens that each further row costs at plain decoding's speed.

        Where more rows take less time than fewer, a draft may get there.
        """
        self._losses = [*itertools.accumulate([*itertools.accumulate(steps)][::-1], min)][::-1]

    def affords(self, drafted: int, spent: float) -> bool:
        """Return whether a draft may have one more token than ``drafted``.

        Its peeks have cost ``spent`` tokens.
        """
        return self._losses[drafted] + spent <= self._balance + self._unplayed

    def passed(self, token: int, gain: float) -> None:
        """Note the first token of a draft of this expected gain that was not affordable."""
        self._passed = token, gain

    def settle(self, record: RoundRecord, gained: float) -> None:
        """Account for a round that gained these tokens over plain decoding, or lost them."""
        self._balance += _PER_ROUND + gained  # peeks that drew nothing are lost, too
        if self._passed is not None:
            (token, gain), loss = self._passed, self._losses[0]
            right = bool(record.tokens) and record.tokens[0] == token
            unplayed = self._unplayed + _UNPLAYED * (max(gain, 1 - loss) if right else -loss)
            self._unplayed, self._passed = min(max(0.0, unplayed), _MOST_UNPLAYED), None
