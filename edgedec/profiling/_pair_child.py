"""Measures two models in a child process: each alone, then together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json, to_json
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import ProfileError
from edgedec.hardware.pinning import pinned
from edgedec.overlap.clock import Clock, WallClock
from edgedec.profiling.children import MeasurementJob, Together
from edgedec.profiling.opened import Opened, opened
from edgedec.profiling.passes import repeated
from edgedec.records.profile import Contention

_CAPACITY = 256
# A target scores many drafted rows; a draft model computes one token after another.
_TARGET_ROWS, _DRAFT_ROWS = 4, 1
_TURNS = 5
_TURN_S = 0.15
_FEWEST = 5


def main(task: Mapping[str, Any]) -> Any:
    """Measure a ``Together`` and return a ``Contention``."""
    return to_json(measure(from_json(Together, task, "job", ProfileError), WallClock()))


def measure(pair: Together, clock: Clock) -> Contention:
    """Run the models alone and together in turns; return median ratios of median pass times."""
    factors: tuple[list[float], list[float]] = ([], [])
    with _opened(pair.target) as target, _opened(pair.draft) as draft:
        one = _Looper(pair.target, target.session, _TARGET_ROWS, clock)
        two = _Looper(pair.draft, draft.session, _DRAFT_ROWS, clock)
        for _ in range(_TURNS):
            alone = one.run(), two.run()
            at_once = _both(one, two, clock)
            for found, before, with_other in zip(factors, alone, at_once, strict=True):
                found.append(median(with_other) / median(before))
    # Faster together than alone is noise.
    slower = [max(1.0, median(found)) for found in factors]
    return Contention(pair.target.place.label, pair.draft.place.label, slower[0], slower[1])


def _opened(job: MeasurementJob) -> AbstractContextManager[Opened]:
    return opened(Path(job.path), job.place, _CAPACITY, job.batch_invariant)


class _Looper:
    """Repeats one session's passes on its cores."""

    def __init__(self, job: MeasurementJob, session: Session, rows: int, clock: Clock) -> None:
        self._job, self._session, self._clock = job, session, clock
        self._tree = TokenTree.chain(repeated(job.sample, 0, rows))
        with pinned(job.place.cores):
            session.prefill(repeated(job.sample, 0, 32))
            self._pass()

    def run(self, go_on: Callable[[], bool] | None = None) -> list[float]:
        """Return the seconds of each pass, for a while or until ``go_on`` returns False."""
        times: list[float] = []
        until = self._clock.now() + _TURN_S
        with pinned(self._job.place.cores):
            while len(times) < _FEWEST or self._clock.now() < until or (go_on and go_on()):
                times.append(self._pass())
        return times

    def _pass(self) -> float:
        begin = self._clock.now()
        self._session.forward(self._tree, want=Want.TOP).first()
        seconds = max(self._clock.now() - begin, 1e-9)
        self._session.rollback(32)
        return seconds


def _both(one: _Looper, two: _Looper, clock: Clock) -> tuple[list[float], list[float]]:
    """Run both in threads until both have measured enough, so that neither ever runs alone."""
    done = [clock.signal(), clock.signal()]
    found: list[list[float]] = [[], []]

    def body(index: int, looper: _Looper) -> None:
        other = done[1 - index]

        def go_on() -> bool:
            done[index].set()
            return not other.is_set()

        try:
            found[index] = looper.run(go_on)
        finally:
            done[index].set()

    both = enumerate((one, two))
    tasks = [clock.start(partial(body, *item), name="a model's passes") for item in both]
    for task in tasks:
        task.join()
    if not all(found):
        raise ProfileError("a pass failed while two models computed at once")
    return found[0], found[1]


if __name__ == "__main__":
    _sandbox_child.serve(main)
