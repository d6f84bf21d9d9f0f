"""Times a session's passes by rows and context, and its prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from edgedec.decoding.pass_times import Budget, TimedPass, Times, preemptions, repeated, time_passes
from edgedec.decoding.policy.cost import plausible
from edgedec.decoding.session import Session
from edgedec.records.profile import PassTimes

# Passes within this factor of their width's quickest count as undisturbed.
_AGREE = 1.1
_ENOUGH, _FEWEST, _MOST = 5, 3, 40
# A slow model gets more time: that of this many single-row passes.
_PASSES = 120

# Tokens of a prompt that one pass computes.
_CHUNK = 512

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
    interruptions: Callable[[], int] = preemptions,
) -> Swept:
    """Measure passes of these widths after the session's tokens, which stay unchanged.

    A pass that was preempted, or that takes 10% longer than the quickest of its width, was
    disturbed: a width's time is the median of the others, its spread that of all. If all were
    preempted, the quickest are used, made consistent with wider passes, and the result is not
    steady. Every place is timed by the wall clock: process time would hide waiting at a place with
    one thread.

    Sweeps go on until every width has five undisturbed passes or the budget is spent; at least two
    run.

    Args:
        session, widths, sample, now, interruptions: as ``time_passes`` takes them.
        budget_s: time in seconds; a slow model gets up to ten times as much.

    """
    context, budget = session.length, Budget(budget_s, _PASSES, fewest=2, most=_MOST)
    found = time_passes(
        session, widths, budget, lambda found: _fewest(found) >= _ENOUGH, sample, now, interruptions
    )
    medians = plausible([median(_undisturbed(times) or _calm(times)) for times in found.values()])
    spreads = tuple(spread([one.seconds for one in times]) for times in found.values())
    steady = _fewest(found) >= _FEWEST
    return Swept(PassTimes(context, tuple(found), medians, spreads), steady)


def _fewest(found: Times) -> int:
    """Return the number of undisturbed passes of the width that has fewest."""
    return min(len(_undisturbed(times)) for times in found.values())


def _undisturbed(times: Sequence[TimedPass]) -> list[float]:
    """Return the seconds of the passes that were not disturbed."""
    return _calm([one for one in times if not one.preempted])


def _calm(times: Sequence[TimedPass]) -> list[float]:
    """Return the seconds of the passes that are about as quick as the quickest."""
    seconds = [one.seconds for one in times]
    least = min(seconds, default=0.0)
    return [one for one in seconds if one <= _AGREE * least]


def prefill(
    session: Session,
    length: int,
    sample: Sequence[int],
    now: Now = perf_counter,
) -> list[float]:
    """Prefill until the session holds ``length`` tokens; return seconds per token, by chunk.

    Args:
        session: shorter than ``length``, or nothing is computed.
        length: in tokens.
        sample: tokens to compute, repeated as needed.

    """
    found = []
    while session.length < length:
        tokens = repeated(sample, session.length, min(_CHUNK, length - session.length))
        begin = now()
        session.prefill(tokens)
        found.append(max(now() - begin, 1e-9) / len(tokens))
    return found


def spread(values: Sequence[float]) -> float:
    """Return half the distance between the quartiles, as a share of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle
