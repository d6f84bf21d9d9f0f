"""Times a session's passes, by their number of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree

# Measured: time of a further row relative to the first, if a pass reads the weights once.
FURTHER_ROW = 0.15
# A short budget measures as few widths as these, each in as many sweeps.
_FEWEST_WIDTHS, _SWEEPS = 4, 3
# Most budgets that a slow model gets.
_BUDGETS = 10

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TimedPass:
    """Seconds of a pass, and whether the system preempted the process meanwhile."""

    seconds: float
    preempted: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure.

    Attributes:
        seconds: after which no further sweep begins.
        passes: a slow model gets the time of this many single-row passes, at most ten times
            ``seconds``.
        fewest, most: sweeps, whatever the time.

    """

    seconds: float
    passes: int = 0
    fewest: int = 1
    most: int = sys.maxsize

    def for_model(self, one_row_s: float) -> float:
        """Return the seconds for a model whose single-row pass takes ``one_row_s``."""
        return max(self.seconds, min(_BUDGETS * self.seconds, self.passes * one_row_s))


# Passes so far by width, ascending; all widths have equally many.
Times = Mapping[int, Sequence[TimedPass]]


def preemptions() -> int:
    """Return how often the system preempted this process; 0 if it does not count that."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def time_passes(
    session: Session,
    widths: Sequence[int],
    budget: Budget,
    enough: Callable[[Times], bool],
    sample: Sequence[int] = (0,),
    clock: Clock = perf_counter,
    interruptions: Callable[[], int] = preemptions,
) -> Times:
    """Return the times of passes after the session's tokens, which stay unchanged.

    Sweeps over all widths are repeated, so that a disturbance affects them all.

    Args:
        session: with room for the widest pass.
        widths: rows of the passes, most important first: as many are measured as three sweeps
            within the budget allow, at least four.
        budget: ends the sweeps.
        enough: called after each sweep; ends them as well.
        sample: tokens for the rows, repeated as needed.
        interruptions: returns how often the process was preempted.

    """

    def once(width: int) -> TimedPass:
        before = interruptions()
        seconds = time_pass(session, repeated(sample, session.length, width), clock)
        return TimedPass(seconds, interruptions() != before)

    started = clock()
    once(max(widths))  # allocates buffers and warms caches
    one_row_s = min(once(1).seconds for _ in range(2))
    budget_s = budget.for_model(one_row_s)
    found: dict[int, list[TimedPass]] = {
        width: [] for width in affordable(widths, one_row_s, budget_s)
    }
    for sweep in range(budget.most):
        # Alternate up and down: right after a wide pass a narrow one is up to a fifth slower.
        for width in reversed(found) if sweep % 2 else found:
            found[width].append(once(width))
        if enough(found) or (sweep + 1 >= budget.fewest and clock() - started > budget_s):
            break
    return found


def time_pass(
    session: Session, tokens: Sequence[int], clock: Clock = perf_counter, want: Want = Want.TOP
) -> float:
    """Return the seconds of a pass over a chain of tokens, which is rolled back."""
    length, tree = session.length, TokenTree.chain(tokens)
    begin = clock()
    session.forward(tree, want=want)
    # The clock may not have moved during a pass of microseconds.
    seconds = max(clock() - begin, 1e-9)
    session.rollback(length)
    return seconds


def repeated(sample: Sequence[int], start: int, count: int) -> list[int]:
    """Return ``count`` tokens from position ``start`` of the endlessly repeated sample."""
    return [sample[(start + index) % len(sample)] for index in range(count)]


def affordable(widths: Sequence[int], one_row_s: float, budget_s: float) -> list[int]:
    """Return the first widths whose sweeps fit the budget, ascending."""
    chosen = list(widths)
    while len(chosen) > _FEWEST_WIDTHS:
        sweep_s = one_row_s * sum(1 + FURTHER_ROW * (width - 1) for width in chosen)
        if _SWEEPS * sweep_s <= budget_s:
            break
        chosen.pop()
    return sorted(chosen)
