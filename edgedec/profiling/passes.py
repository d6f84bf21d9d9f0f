"""Times a session's passes by rows and context, and its prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from edgedec.decoding.policy.cost import plausible
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CannotRollback
from edgedec.records.profile import PassTimes

# Passes within this factor of their width's quickest count as undisturbed.
_AGREE = 1.1
_ENOUGH, _FEWEST, _MOST = 5, 3, 40
# Lower bound of the cost of a further row, relative to the first one's.
_ROW_SHARE = 0.15
_FEWEST_WIDTHS = 4
# A slow model gets more time: that of the first number of single-row passes, at most the second
# number of budgets.
_PASSES, _BUDGETS = 120, 10

# Tokens of a prompt that are read in one pass.
_CHUNK = 512

Now = Callable[[], float]


def preemptions() -> int:
    """Return how often the system preempted this process; 0 if it does not count that."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True, slots=True)
class Swept:
    """Pass times, and whether enough sweeps agreed."""

    times: PassTimes
    steady: bool


def sweep(
    session: Session,
    widths: Sequence[int],
    sample: Sequence[int],
    budget_s: float,
    now: Now = perf_counter,
    interruptions: Callable[[], int] = preemptions,
) -> Swept:
    """Measure passes of these widths after the session's tokens, which stay unchanged.

    Widths take turns, so that a disturbance affects them all. A pass that was preempted, or that
    takes 10% longer than the quickest of its width, was disturbed: a width's time is the median of
    the others, its spread that of all. If all were preempted, the quickest are used, made
    consistent with wider passes, and the result is not steady. Every place is timed by the wall
    clock: process time would hide waiting at a place with one thread.

    Sweeps go on until every width has five valid passes or the budget is spent; at least two run. A
    recurrent model, which cannot roll back, is measured with single rows only, and each measured
    pass extends its state.

    Args:
        session: with room for the widest pass.
        widths: numbers of rows, most important first; a short budget measures fewer.
        sample: tokens for the rows, repeated as needed.
        budget_s: time in seconds; a slow model gets up to ten times as much.
        now: returns seconds.
        interruptions: returns how often the process was preempted.

    """
    started, context = now(), session.length
    _once(session, max(widths), sample, now)  # allocates buffers and warms caches
    one_s = min(_once(session, 1, sample, now) for _ in range(2))
    budget_s = max(budget_s, min(_BUDGETS * budget_s, _PASSES * one_s))
    found = {width: _Times([], []) for width in _affordable(widths, one_s, budget_s)}
    for turn in range(_MOST):
        # Alternate up and down: right after a wide pass a narrow one is a fifth slower.
        for width in reversed(found) if turn % 2 else found:
            before = interruptions()
            seconds = _once(session, width, sample, now)
            found[width].add(seconds, disturbed=interruptions() != before)
        if min(len(_calm(times.clean)) for times in found.values()) >= _ENOUGH:
            break
        if turn > 0 and now() - started > budget_s:
            break
    medians = plausible([times.median for times in found.values()])
    spreads = tuple(spread(times.all) for times in found.values())
    steady = min(len(_calm(times.clean)) for times in found.values()) >= _FEWEST
    return Swept(PassTimes(context, tuple(found), medians, spreads), steady)


@dataclass(frozen=True, slots=True)
class _Times:
    """Passes of one width: all, and the undisturbed ones."""

    all: list[float]
    clean: list[float]

    def add(self, seconds: float, *, disturbed: bool) -> None:
        self.all.append(seconds)
        if not disturbed:
            self.clean.append(seconds)

    @property
    def median(self) -> float:
        return median(_calm(self.clean or self.all))


def _calm(times: Sequence[float]) -> list[float]:
    """Return the times that were not disturbed."""
    least = min(times, default=0.0)
    return [seconds for seconds in times if seconds <= _AGREE * least]


def read(
    session: Session,
    length: int,
    sample: Sequence[int],
    now: Now = perf_counter,
) -> list[float]:
    """Prefill until the session holds ``length`` tokens; return seconds per token, by chunk.

    Args:
        session: shorter than ``length``, or nothing is read.
        length: in tokens.
        sample: tokens to read, repeated as needed.
        now: returns seconds.

    """
    found = []
    while session.length < length:
        tokens = repeated(sample, session.length, min(_CHUNK, length - session.length))
        begin = now()
        session.prefill(tokens)
        found.append(max(now() - begin, 1e-9) / len(tokens))
    return found


def repeated(sample: Sequence[int], start: int, count: int) -> list[int]:
    """Return ``count`` tokens from position ``start`` of the endlessly repeated sample."""
    return [sample[(start + index) % len(sample)] for index in range(count)]


def spread(values: Sequence[float]) -> float:
    """Return half the distance between the quartiles, as a share of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle


def _once(
    session: Session, width: int, sample: Sequence[int], now: Now, want: Want = Want.TOP
) -> float:
    length = session.length
    tree = TokenTree.chain(repeated(sample, length, width))
    begin = now()
    scored = session.forward(tree, want=want)
    scored.first()
    # The clock may not have moved during a pass of microseconds.
    seconds = max(now() - begin, 1e-9)
    try:
        session.rollback(length)
    except CannotRollback:  # a recurrent model keeps the tokens
        session.commit(list(range(width)))
    return seconds


def _affordable(widths: Sequence[int], one_s: float, budget_s: float) -> list[int]:
    """Return as many of the first widths as fit the budget with ``_FEWEST`` sweeps, ascending."""
    chosen = list(widths)
    while len(chosen) > _FEWEST_WIDTHS:
        sweep_s = one_s * sum(1 + _ROW_SHARE * (width - 1) for width in chosen)
        if _FEWEST * sweep_s <= budget_s:
            break
        chosen.pop()
    return sorted(chosen)
