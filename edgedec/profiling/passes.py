"""Times of a session's passes: by rows and context, of reading, and of bringing rows back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CannotRollback
from edgedec.records.profile import PassTimes

# Passes within this factor of their width's quickest were not disturbed.
_AGREE = 1.1
_ENOUGH, _FEWEST, _MOST = 5, 3, 40
# What a row beyond the first costs at least, as a share of the first.
_ROW_SHARE = 0.15
_FEWEST_WIDTHS = 4
# A slow model's passes get more time: as long as so many of one row take, or ten budgets.
_PASSES, _BUDGETS = 120, 10

# Tokens of a prompt that are read at once.
_CHUNK = 512

Now = Callable[[], float]


def preemptions() -> int:
    """How often the system took a core from this process, as far as it says."""
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
    """Measure passes over so many rows onto what the session holds, which stays as it is.

    Widths take turns, so that a disturbance hits them all. A pass that was interrupted, or that
    takes 10% longer than the quickest one of its width, was disturbed: a width's figure is the
    median of the others, its spread that of all. Where all were interrupted, the quickest stand
    in and the figures are not steady. Every place is timed by the same clock on the wall: a
    process's own time would spare those with one thread what others wait for.

    Sweeps go on until every width has five that count or the budget is spent; two always run.
    A recurrent model, which cannot take tokens back, is asked for single rows only, and reads
    on as it is measured.

    Args:
        session: with room for the widest pass.
        widths: rows, what matters most first; fewer are measured where the budget is short.
        sample: tokens for the rows, repeated as needed.
        budget_s: seconds; a slow model gets up to ten times as many.
        now: a clock.
        interruptions: counts them.

    """
    started, context = now(), session.length
    _once(session, max(widths), sample, now)  # buffers and caches
    one_s = min(_once(session, 1, sample, now) for _ in range(2))
    budget_s = max(budget_s, min(_BUDGETS * budget_s, _PASSES * one_s))
    found = {width: _Times([], []) for width in _affordable(widths, one_s, budget_s)}
    for turn in range(_MOST):
        # Up and down in turns: right after a wide pass a narrow one is a fifth slower.
        for width in reversed(found) if turn % 2 else found:
            before = interruptions()
            seconds = _once(session, width, sample, now)
            found[width].add(seconds, disturbed=interruptions() != before)
        if min(len(_calm(times.clean)) for times in found.values()) >= _ENOUGH:
            break
        if turn > 0 and now() - started > budget_s:
            break
    medians = tuple(times.median for times in found.values())
    spreads = tuple(spread(times.all) for times in found.values())
    steady = min(len(_calm(times.clean)) for times in found.values()) >= _FEWEST
    return Swept(PassTimes(context, tuple(found), medians, spreads), steady)


@dataclass(frozen=True, slots=True)
class _Times:
    """Passes of one width: all, and the clean ones."""

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
    """Those that were not disturbed."""
    least = min(times, default=0.0)
    return [seconds for seconds in times if seconds <= _AGREE * least]


def read(
    session: Session,
    length: int,
    sample: Sequence[int],
    now: Now = perf_counter,
) -> list[float]:
    """Let a session read on until it holds ``length`` tokens; seconds a token, by chunks.

    Args:
        session: shorter than ``length``, or nothing is read.
        length: tokens.
        sample: tokens to read, repeated as needed.
        now: a clock.

    """
    found = []
    while session.length < length:
        tokens = repeated(sample, session.length, min(_CHUNK, length - session.length))
        begin = now()
        session.prefill(tokens)
        found.append(max(now() - begin, 1e-9) / len(tokens))
    return found


def transfer_s(
    session: Session, sample: Sequence[int], rows: int = 8, now: Now = perf_counter
) -> float:
    """Seconds that a whole row of logits costs beyond its first choices.

    The difference of passes that bring all logits and of those that bring the top only, over
    their rows; pass by pass in turns.
    """
    differences = []
    for _ in range(7):
        top = _once(session, rows, sample, now)
        whole = _once(session, rows, sample, now, Want.TOP | Want.LOGITS)
        differences.append((whole - top) / rows)
    return max(0.0, median(differences))


def repeated(sample: Sequence[int], start: int, count: int) -> list[int]:
    """``count`` tokens from place ``start`` of the sample told again and again."""
    return [sample[(start + index) % len(sample)] for index in range(count)]


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
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
    # A clock may not have moved during a pass of microseconds.
    seconds = max(now() - begin, 1e-9)
    try:
        session.rollback(length)
    except CannotRollback:  # a recurrent model goes on
        session.commit(list(range(width)))
    return seconds


def _affordable(widths: Sequence[int], one_s: float, budget_s: float) -> list[int]:
    """The first widths of which the fewest sweeps fit the budget, ascending."""
    chosen = list(widths)
    while len(chosen) > _FEWEST_WIDTHS:
        sweep_s = one_s * sum(1 + _ROW_SHARE * (width - 1) for width in chosen)
        if _FEWEST * sweep_s <= budget_s:
            break
        chosen.pop()
    return sorted(chosen)
