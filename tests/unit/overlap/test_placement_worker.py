"""A worker does its jobs in order, idles between them, and survives what they raise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from running_threads import threads
from waiting import LIMIT_S

from edgedec.errors import Interrupted
from edgedec.hardware.clock import Clock, Signal, WallClock
from edgedec.overlap.lookahead import Worker
from tests.virtual_time import VirtualClock


class Told:
    """What a worker did, and waiting for it."""

    def __init__(self, clock: Clock, idle: Callable[[], bool] | None = None) -> None:
        self.clock, self.done, self.failed = clock, clock.signal(), []
        self.said: list[int] = []
        self.worker = Worker(clock, "worker", idle or (lambda: False), self.failed.append)

    def say(self, number: int) -> None:
        self.worker.post(lambda: self.said.append(number))

    def wait(self) -> None:
        """Until all that was posted is done."""
        self.done.clear()
        self.worker.post(self.done.set)
        assert self.done.wait(LIMIT_S)

    def close(self) -> None:
        self.worker.close(lambda: None)


@pytest.fixture(params=[WallClock, VirtualClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_jobs_are_done_in_order(clock: Clock) -> None:
    told = Told(clock)
    for number in range(100):
        told.say(number)
    told.wait()
    assert told.said == list(range(100))
    told.close()


def test_what_a_job_raises_is_told_and_the_next_one_is_done(clock: Clock) -> None:
    told = Told(clock)

    def fail() -> None:
        raise KeyError("a fault")

    told.say(1)
    told.worker.post(fail)
    told.say(2)
    told.wait()
    assert told.said == [1, 2]
    assert [str(error) for error in told.failed] == ["'a fault'"]
    told.close()


def test_an_interruption_is_no_failure(clock: Clock) -> None:
    passes = iter([Interrupted("interrupted")] * 3)

    def idle() -> bool:
        for error in passes:
            raise error
        return False

    told = Told(clock, idle)
    for _ in range(4):
        told.wait()
    assert told.failed == []
    assert list(passes) == []
    told.close()


def test_it_idles_while_there_is_something_to_do_and_hears_jobs_meanwhile(clock: Clock) -> None:
    # So many that a job is heard before they end on a machine that is busy as well.
    many, turns = 2000, list[int]()

    def idle() -> bool:
        turns.append(len(turns))
        clock.sleep(1e-4)
        return len(turns) < many

    told = Told(clock, idle)
    told.wait()
    heard = len(turns)
    while len(turns) < many:
        clock.sleep(1e-3)
    told.wait()
    assert heard < many
    # Woken without anything to do it looks once.
    before = len(turns)
    told.wait()
    assert before <= len(turns) <= before + 2
    told.close()


def test_a_closed_worker_has_no_thread(clock: Clock) -> None:
    before = threads()
    told = Told(clock, idle=lambda: clock.sleep(1e-4) is None)
    assert len(threads() - before) == 1
    told.close()
    told.close()
    for thread in threading.enumerate():
        if thread.name == "worker":
            thread.join(LIMIT_S)
    assert threads() <= before


def test_a_pass_is_interrupted_to_close() -> None:
    running, stop = threading.Event(), threading.Event()

    def idle() -> bool:
        running.set()
        assert stop.wait(LIMIT_S)
        raise Interrupted("interrupted")

    told = Told(WallClock(), idle)
    assert running.wait(LIMIT_S)
    told.worker.close(stop.set)
    assert told.failed == []


class Interposed(threading.Event):
    """A signal that lets something happen just before it is cleared, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] | None = None
        self.was_set = threading.Event()

    def set(self) -> None:
        super().set()
        self.was_set.set()

    def clear(self) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        super().clear()


class InterposedClock(WallClock):
    """A clock that gives out one such signal, the worker's own, and then plain ones."""

    def __init__(self) -> None:
        self.wake = Interposed()
        self._given = False

    def signal(self) -> Signal:
        if self._given:
            return super().signal()
        self._given = True
        return self.wake


def test_a_close_just_before_the_worker_clears_its_signal_is_heard() -> None:
    clock = InterposedClock()
    worker = Worker(clock, "worker", lambda: False, lambda error: None)
    closing = threading.Thread(target=worker.close, args=(lambda: None,), daemon=True)

    asked = threading.Event()

    def close() -> None:
        clock.wake.was_set.clear()
        closing.start()
        if clock.wake.was_set.wait(LIMIT_S):
            asked.set()

    clock.wake.before = close
    worker.wake()
    assert asked.wait(LIMIT_S)
    closing.join(LIMIT_S)
    ended = not closing.is_alive()
    worker.wake()  # lets the thread of a worker that lost the call end all the same
    assert ended, "the worker slept over its end"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads are not kept on cores")
def test_it_is_kept_on_its_cores() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    clock, found = WallClock(), []
    done = clock.signal()
    worker = Worker(clock, "worker", lambda: False, found.append, cores=(core,))
    worker.post(lambda: found.append(os.sched_getaffinity(0)))
    worker.post(done.set)
    assert done.wait(LIMIT_S)
    worker.close(lambda: None)
    assert found == [{core}]
