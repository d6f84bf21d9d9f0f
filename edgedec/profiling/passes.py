"""Times of a session's passes: by rows and context, of reading, and of bringing rows back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CannotRollback
from edgedec.placement.profile import PassTimes

# Sweeps within this factor of the quickest one were not disturbed.
_AGREE = 1.1
_ENOUGH, _FEWEST, _MOST = 5, 3, 40
# Half the distance between quartiles of the narrowest passes, as a share of the median.
_CALM, _NARROW = 0.1, 4
# What a row beyond the first costs at least, as a share of the first.
_ROW_SHARE = 0.15
_FEWEST_WIDTHS = 4

Now = Callable[[], float]


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
) -> Swept:
    """Measure passes over so many rows onto what the session holds, which stays as it is.

    A recurrent model, which cannot take tokens back, is asked for single rows only, and reads
    on as it is measured.

    Widths take turns, so that a disturbance hits them all. A sweep that takes 10% longer than
    the quickest one was disturbed and does not count. Sweeps go on until five agree and the
    times of the narrow passes, which a disturbance hits hardest, lie close together, or until
    the budget is spent; two always run.

    Args:
        session: with room for the widest pass.
        widths: rows, what matters most first; fewer are measured where the budget is short.
        sample: tokens for the rows, repeated as needed.
        budget_s: seconds.
        now: a clock.

    """
    started = now()
    context = session.length
    _once(session, max(widths), sample, now)  # buffers and caches
    one_s = min(_once(session, 1, sample, now) for _ in range(2))
    chosen = _affordable(widths, one_s, budget_s)
    sweeps: list[list[float]] = []
    while True:
        # Up and down in turns: right after a pass many times as wide a narrow one takes up to a
        # fifth longer, which decoding does not do to it.
        order = chosen if len(sweeps) % 2 == 0 else chosen[::-1]
        found = {width: _once(session, width, sample, now) for width in order}
        sweeps.append([found[width] for width in chosen])
        best = min(map(sum, sweeps))
        agreed = [times for times in sweeps if sum(times) <= _AGREE * best]
        by_width = list(zip(*agreed, strict=True))
        spreads = tuple(spread(of_one) for of_one in by_width)
        calm = max(spreads[:_NARROW]) <= _CALM
        late = len(sweeps) > 1 and now() - started > budget_s
        if (len(agreed) >= _ENOUGH and calm) or late or len(sweeps) == _MOST:
            break
    medians = tuple(median(of_one) for of_one in by_width)
    steady = len(agreed) >= _FEWEST and max(spreads[:_NARROW]) <= 2 * _CALM
    return Swept(PassTimes(context, tuple(chosen), medians, spreads), steady)


def read_s(session: Session, length: int, sample: Sequence[int], now: Now = perf_counter) -> float:
    """Let a session read on until it holds ``length`` tokens; seconds a token."""
    missing = length - session.length
    if missing <= 0:
        return 0.0
    tokens = repeated(sample, session.length, missing)
    begin = now()
    session.prefill(tokens)
    return (now() - begin) / missing


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
    scored.first_ids()
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
