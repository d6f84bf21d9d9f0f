"""The virtual clock: one thread at a time, time that jumps."""

import signal
import threading
import time

import pytest
from running_threads import threads
from waiting import LIMIT_S

from edgedec.errors import Interrupted, StateError
from edgedec.hardware.clock import Clock, WallClock
from tests.virtual_time import VirtualClock


def two_workers(clock: Clock) -> list[tuple[str, float]]:
    """Two workers and the caller, who meet at signals and at the same moments."""
    log: list[tuple[str, float]] = []
    ready, go = clock.signal(), clock.signal()

    def worker(name: str, seconds: float) -> None:
        for _ in range(3):
            clock.sleep(seconds)
            log.append((name, round(clock.now(), 9)))
        ready.set()
        go.wait()
        log.append((name, round(clock.now(), 9)))

    start = clock.now()
    tasks = [
        clock.start(lambda: worker("a", 0.02), name="a"),
        clock.start(lambda: worker("b", 0.03), name="b"),
    ]
    assert not ready.wait(0.05), "somebody was ready before the sleeps were over"
    log.append(("caller", round(clock.now(), 9)))
    assert ready.wait(LIMIT_S)
    clock.sleep(0.04)
    go.set()
    for task in tasks:
        task.join()
    return [(name, round(moment - start, 6)) for name, moment in log]


def test_time_passes_only_while_all_sleep_or_wait():
    with VirtualClock() as clock:
        clock.sleep(3600)
        assert clock.now() == 3600
        clock.signal().wait(60)
        assert clock.now() == 3660
        time.sleep(0.002)  # what a thread does with real time is free
        assert clock.now() == 3660


def test_sleepers_wake_in_the_order_of_their_moments():
    with VirtualClock() as clock:
        assert two_workers(clock) == [
            ("a", 0.02),
            ("b", 0.03),
            ("a", 0.04),
            ("caller", 0.05),
            # Of two with the same moment the one that went to sleep first.
            ("b", 0.06),
            ("a", 0.06),
            ("b", 0.09),
            ("a", 0.1),
            ("b", 0.1),
        ]


def test_under_the_wall_clock_the_same_comes_after_the_same():
    """At which moments, on a busy machine nobody can say."""
    clock, log = WallClock(), []
    ready, go = clock.signal(), clock.signal()

    def worker(name: str, seconds: float) -> None:
        for _ in range(3):
            clock.sleep(seconds)
        log.append((name, "slept"))
        ready.set()
        assert go.wait(60)
        log.append((name, "went"))

    start = clock.now()
    tasks = [
        clock.start(lambda: worker("a", 0.002), name="a"),
        clock.start(lambda: worker("b", 0.003), name="b"),
    ]
    assert ready.wait(60)
    assert clock.now() - start >= 0.005
    assert {what for _, what in log} == {"slept"}
    go.set()
    for task in tasks:
        task.join()
    assert sorted(log) == [("a", "slept"), ("a", "went"), ("b", "slept"), ("b", "went")]
    assert clock.now() - start >= 0.008


class Unordered(VirtualClock):
    """A broken twin: whoever sleeps wakes at once, and time goes by the sum of all sleeps."""

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def test_a_clock_that_does_not_wait_is_noticed():
    with Unordered() as broken, VirtualClock() as clock, pytest.raises(AssertionError):
        assert two_workers(broken) == two_workers(clock)


def test_only_one_thread_runs_at_a_time():
    running, most = 0, 0

    def work(clock: VirtualClock) -> None:
        nonlocal running, most
        for _ in range(20):
            running += 1
            most = max(most, running)
            time.sleep(0.0001)  # lets another thread in, if one may run
            running -= 1
            clock.sleep(0.001)

    with VirtualClock() as clock:
        tasks = [clock.start(lambda: work(clock), name=str(n)) for n in range(3)]
        for task in tasks:
            task.join()
    assert most == 1


def test_a_deadlock_says_who_waits_for_what_instead_of_hanging():
    raised = []
    with VirtualClock() as clock:
        never = clock.signal()

        def wait() -> None:
            try:
                never.wait()
            except StateError as error:
                raised.append(str(error))

        task = clock.start(wait, name="the draft's worker")
        clock.sleep(1)
        with pytest.raises(StateError, match="deadlock at 1 s") as told:
            never.wait()
        assert "the draft's worker waits for a signal" in str(told.value)
        assert "the caller waits for a signal" in str(told.value)
        task.join()
    assert len(raised) == 1, "the worker was not told"


def test_what_a_task_raises_comes_out_of_its_join_once():
    with VirtualClock() as clock:
        task = clock.start(lambda: {}["missing"], name="task")
        with pytest.raises(KeyError):
            task.join()
        task.join()


def test_leaving_ends_tasks_that_still_wait():
    before = threads()
    ended = []

    def wait() -> None:
        try:
            clock.signal().wait()
        except Interrupted:
            ended.append("waiting")
            raise

    def sleep() -> None:
        try:
            clock.sleep(1e9)
        finally:
            ended.append("sleeping")

    with VirtualClock() as clock:
        clock.start(wait, name="wait")
        clock.start(sleep, name="sleep")
        clock.sleep(1)
        clock.start(lambda: ended.append("never ran"), name="not begun")
    assert ended == ["waiting", "sleeping"]
    assert threads() <= before


def test_an_exception_of_the_caller_ends_the_tasks_as_well():
    before = threads()

    def fail() -> None:
        with VirtualClock() as clock:
            clock.start(clock.signal().wait, name="wait")
            clock.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert threads() <= before


def test_another_thread_may_not_wait_with_it():
    found = []

    def foreign() -> None:
        try:
            clock.signal().wait()
        except StateError as error:
            found.append(str(error))

    with VirtualClock() as clock:
        thread = threading.Thread(target=foreign)
        thread.start()
        thread.join()
    assert found


def test_signals_are_set_cleared_and_wake_all_who_wait():
    with VirtualClock() as clock:
        signal, woken = clock.signal(), []

        def wait(name: str) -> None:
            woken.append((name, signal.wait(10), clock.now()))

        for name in "ab":
            clock.start(lambda name=name: wait(name), name=name)
        assert not signal.is_set()
        clock.sleep(2)
        signal.set()
        assert signal.is_set()
        signal.clear()  # those who waited were woken all the same
        clock.sleep(1)
        assert woken == [("a", True, 2), ("b", True, 2)]
        assert not signal.wait(0.5)
        assert clock.now() == 3.5
        clock.sleep(20)  # the moments at which they would have given up pass unnoticed
        assert clock.now() == 23.5


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_ctrl_c_while_a_task_runs_ends_both():
    before, ended, main = threads(), [], threading.main_thread().ident

    def work() -> None:
        until = time.monotonic() + 60
        while not clock._closing and time.monotonic() < until:
            # Python misses one that comes just before a thread begins to wait.
            signal.pthread_kill(main, signal.SIGINT)
            again = time.monotonic() + 1
            while not clock._closing and time.monotonic() < again:
                time.sleep(0.001)  # it runs on while the caller unwinds
        try:
            clock.sleep(1)
        except Interrupted:
            ended.append("told")

    def run() -> None:
        nonlocal clock
        with VirtualClock() as clock:
            clock.start(work, name="work")
            clock.sleep(10)

    clock = VirtualClock()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert ended == ["told"]
    assert threads() <= before
