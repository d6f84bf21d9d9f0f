"""Cost curves: read as measured, calibrated through disturbances, kept true while running."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_world import CURVE

from edgedec.decoding.policy import CostCurve, calibrate
from edgedec.decoding.policy.cost import LiveCost, RunningMedian
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError
from edgedec.testing import FakeModel, FakeSession

pytestmark = pytest.mark.usefixtures("full_measurements")


def test_a_curve_is_read_as_measured() -> None:
    curve = CostCurve((1, 2, 3, 4, 8), (23.0, 33.0, 41.0, 32.0, 52.0))
    assert [curve.at(n) for n in (1, 2, 3, 4, 8)] == [23, 33, 41, 32, 52]
    assert curve.at(6) == 42
    assert curve.at(12) == 72
    assert CostCurve((1, 2), (5.0, 4.0)).at(9) == 4  # nothing gets cheaper beyond
    assert CostCurve((2, 4), (5.0, 6.0)).at(1) == 5
    assert CostCurve((1,), (5.0,)).at(7) == 5


@pytest.mark.parametrize(
    ("widths", "seconds"),
    [((), ()), ((1, 2), (1.0,)), ((2, 1), (1.0, 1.0)), ((1, 1), (1.0, 1.0)), ((1,), (0.0,))],
)
def test_a_curve_that_is_none_is_refused(
    widths: tuple[int, ...], seconds: tuple[float, ...]
) -> None:
    with pytest.raises(InputError):
        CostCurve(widths, seconds)


class Timed:
    """A session over a clock of its own: a pass of n rows takes what ``cost`` says."""

    def __init__(self, cost: Callable[[int, int], float], capacity: int = 200) -> None:
        self.now, self.passes = 0.0, 0
        self.session = FakeModel(8).open(capacity)
        forward = self.session.forward

        def timed(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            self.passes += 1
            self.now += cost(len(tree) - start, self.passes)
            return forward(tree, start, want)

        self.session.forward = timed  # type: ignore[method-assign]

    def calibrate(self, widths: tuple[int, ...] = (1, 2, 3, 4), budget_s: float = 100) -> CostCurve:
        return calibrate(self.session, widths, budget_s, lambda: self.now)


def test_calibration_measures_every_width_and_leaves_the_session_as_it_was() -> None:
    timed = Timed(lambda rows, _: CURVE.at(rows))
    timed.session.prefill([1, 2, 3])
    curve = timed.calibrate((1, 2, 4, 8))
    assert curve.seconds == pytest.approx([CURVE.at(n) for n in (1, 2, 4, 8)])
    assert curve.steady
    assert timed.session._committed == [1, 2, 3]
    assert timed.session._pending == 0
    assert timed.passes == 3 + 3 * 4  # three to warm up, three sweeps that agree


def test_a_disturbed_sweep_is_repeated() -> None:
    # The machine is twice as slow during passes 6 to 13.
    timed = Timed(lambda rows, n: CURVE.at(rows) * (2 if 6 <= n < 14 else 1))
    curve = timed.calibrate()
    assert curve.steady
    assert curve.seconds == pytest.approx([CURVE.at(n) for n in (1, 2, 3, 4)])
    assert timed.passes > 3 + 3 * 4


def test_a_large_model_is_measured_at_what_matters_most() -> None:
    for one_row, widths in ((5e-3, 11), (14e-3, 6), (1.0, 4)):
        timed = Timed(lambda rows, _, one=one_row: one * CURVE.at(rows) / CURVE.at(1))
        curve = calibrate(timed.session, clock=lambda timed=timed: timed.now)
        assert len(curve.widths) >= widths
        assert {1, 2, 4, 8} <= set(curve.widths)
        assert curve.widths == tuple(sorted(curve.widths))
        assert one_row == 1.0 or timed.now < 0.7


def test_a_machine_that_never_rests_is_told() -> None:
    # Every sweep slower than the last: no three agree.
    timed = Timed(lambda rows, n: CURVE.at(rows) * 1.2 ** ((n - 1) // 4))
    curve = timed.calibrate(budget_s=0.5)
    assert not curve.steady
    assert len(curve.seconds) == 4


@pytest.mark.parametrize(
    "slower",
    [
        lambda n: 1.3 if n == 6 else 1,  # one slow pass
        # Two passes of three take up to eight times as long: the quickest of a width counts.
        lambda n: 1 if n % 3 == 0 else 2 + n % 7,
    ],
)
def test_slow_passes_move_nothing(slower: Callable[[int], float]) -> None:
    timed = Timed(lambda rows, n: CURVE.at(rows) * slower(n))
    assert timed.calibrate().seconds == pytest.approx([CURVE.at(n) for n in (1, 2, 3, 4)])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_width_that_is_always_disturbed_is_held_to_what_wider_ones_show(rows: int) -> None:
    timed = Timed(lambda n, _: CURVE.at(n) * (9 if n == rows else 1))
    seconds = dict(zip((1, 2, 3, 4), timed.calibrate().seconds, strict=True))
    assert seconds.pop(rows) <= 1.4 * min(CURVE.at(n) for n in range(rows + 1, 5))
    assert all(seconds[n] == pytest.approx(CURVE.at(n)) for n in seconds)


def test_a_small_session_measures_what_fits() -> None:
    timed = Timed(lambda rows, _: 1.0 * rows, capacity=3)
    assert timed.calibrate((1, 2, 3, 4)).widths == (1, 2, 3)
    timed.session.prefill([1, 1, 1])
    with pytest.raises(InputError, match="in use"):
        timed.calibrate()


def test_an_interrupted_calibration_leaves_the_session_as_it_was() -> None:
    def stop(rows: int, n: int) -> float:
        if n == 7:
            raise KeyboardInterrupt
        return 1.0

    timed = Timed(stop)
    timed.session.prefill([1, 2])
    with pytest.raises(KeyboardInterrupt):
        timed.calibrate()
    assert isinstance(timed.session, FakeSession)
    assert timed.session._committed == [1, 2]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 9))
def test_a_running_median(values: list[float], size: int) -> None:
    running = RunningMedian(size, [1.0])
    for value in values:
        running.add(value)
    last = ([1.0, *values])[-size:]
    assert min(last) <= running.value <= max(last)
    if len(last) % 2:
        assert running.value == median(last)


def test_live_costs_follow_the_machine() -> None:
    live = LiveCost(CURVE, 17)
    assert live.at(4) == pytest.approx(CURVE.at(4))
    for _ in range(12):
        live.took(1, 2 * CURVE.at(1))
        live.took(4, 2 * CURVE.at(4))
    assert live.at(4) == pytest.approx(2 * CURVE.at(4))
    # A width that was not met meanwhile moves along.
    assert live.at(9) == pytest.approx(2 * CURVE.at(9))


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_clock_that_did_not_move_says_nothing(seconds: float) -> None:
    live = LiveCost(CURVE, 17)
    for rows in (1, 4) * 10:
        live.took(rows, seconds)
    assert [live.at(rows) for rows in (1, 4)] == [CURVE.at(1), CURVE.at(4)]
    assert live.slowdown == 1.0


def test_what_slows_every_pass_is_not_laid_to_the_width_that_is_met() -> None:
    # Plain decoding for long, then the machine slows: drafts must not look cheap beside it.
    live = LiveCost(CURVE, 17)
    for slower in (1.0, 2.5, 0.8, 3.0):
        for _ in range(20):
            live.took(1, slower * CURVE.at(1))
            assert live.at(4) / live.at(1) == pytest.approx(CURVE.at(4) / CURVE.at(1))
        assert live.slowdown == pytest.approx(slower)


def test_live_costs_mend_a_width_that_was_measured_wrong() -> None:
    bent = CostCurve((1, 2, 3, 4), (1.0, 1.1, 1.2, 4.0))
    live = LiveCost(bent, 4)
    for _ in range(12):
        for rows, seconds in ((1, 1.0), (2, 1.1), (3, 1.2), (4, 1.3)):
            live.took(rows, seconds)
    assert [live.at(n) for n in (1, 2, 3, 4)] == pytest.approx([1, 1.1, 1.2, 1.3], rel=0.05)


def test_a_pause_is_not_a_cost() -> None:
    live = LiveCost(CURVE, 17)
    for n in range(20):
        live.took(2, CURVE.at(2) * (1000 if n % 5 == 4 else 1))
    assert live.at(2) == pytest.approx(CURVE.at(2))
    live.took(99, 1.0)  # wider than any draft of ours
