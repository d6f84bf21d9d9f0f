"""Times of passes, read off a clock that only passes move."""

from collections.abc import Iterator
from time import sleep
from types import SimpleNamespace

import pytest

from edgedec.decoding import pass_times
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.profiling import _child, passes
from edgedec.profiling.children import MeasurementJob
from edgedec.records.place import Place
from edgedec.testing import FakeModel

SAMPLE = [1, 2, 3, 4, 5]
WIDTHS = (1, 2, 4, 8, 3)


def cost(rows: int) -> float:
    """Not monotone, as some kernels: four rows are cheaper than three."""
    return {1: 0.010, 2: 0.018, 3: 0.026, 4: 0.021, 8: 0.040}[rows]


class Slow:
    """A session whose passes take their time; some are disturbed."""

    def __init__(self, disturb: Iterator[float]) -> None:
        self._session = FakeModel(vocab_size=8).open(512)
        self._disturb = disturb
        self.now, self.rows = 0.0, 0
        self.interrupted = False
        self.interrupted_by = lambda factor: False

    def __getattr__(self, name: str):
        return getattr(self._session, name)

    def prefill(self, tokens, on_chunk=None) -> None:
        self._session.prefill(tokens, on_chunk)
        self.now += 0.002 * len(tokens)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        scored = self._session.forward(tree, start, want)
        self.rows = len(tree)
        factor = next(self._disturb)
        self.interrupted = self.interrupted_by(factor)
        self.now += cost(len(tree)) * factor
        if want & Want.LOGITS:
            self.now += self._logits_s * len(tree)
        return scored


def calm() -> Iterator[float]:
    while True:
        yield 1.0


def every(number: int, factor: float) -> Iterator[float]:
    count = 0
    while True:
        count += 1
        yield factor if count % number == 0 else 1.0


def growing() -> Iterator[float]:
    factor = 1.0
    while True:
        factor *= 1.2
        yield factor


def sweep(session: Slow, budget_s: float = 10.0) -> passes.Swept:
    return passes.sweep(session, WIDTHS, SAMPLE, budget_s, lambda: session.now, lambda: 0)


def test_a_quiet_machine_gives_the_curve_as_it_is_and_leaves_the_session_as_it_was() -> None:
    session = Slow(calm())
    session.prefill(SAMPLE)
    found = sweep(session)
    assert found.steady
    assert found.times.context == session.length == len(SAMPLE)
    assert found.times.widths == (1, 2, 3, 4, 8)
    assert found.times.seconds == pytest.approx([cost(rows) for rows in found.times.widths])
    assert found.times.spread == pytest.approx([0.0] * 5)


def test_disturbed_passes_do_not_count_and_show_in_the_spread() -> None:
    session = Slow(every(3, 5.0))
    found = sweep(session)
    assert found.steady
    assert found.times.seconds == pytest.approx([cost(rows) for rows in found.times.widths])
    assert max(found.times.spread) > 0.5


def test_passes_that_were_interrupted_do_not_count() -> None:
    # All but every third are interrupted, and quicker than those that count.
    session = Slow(every(3, 1.5))
    marks = 0

    def interruptions() -> int:
        nonlocal marks
        marks += session.interrupted
        session.interrupted = False
        return marks

    session.interrupted_by = lambda factor: factor == 1.0
    found = passes.sweep(session, WIDTHS, SAMPLE, 10.0, lambda: session.now, interruptions)
    assert found.times.seconds == pytest.approx([1.5 * cost(rows) for rows in found.times.widths])
    assert found.steady


@pytest.mark.parametrize("threads", [1, 2])
def test_on_a_busy_machine_all_places_are_timed_alike(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes here wait and do not compute: one thread's own time would be next to nothing."""
    marks = iter(range(10**6))
    resource = pytest.importorskip("resource")
    told = lambda _: SimpleNamespace(ru_nivcsw=next(marks))  # noqa: E731
    monkeypatch.setattr(resource, "getrusage", told)

    class Waiting(Slow):
        def prefill(self, tokens, on_chunk=None) -> None:
            sleep(2e-4 * len(tokens))
            self._session.prefill(tokens, on_chunk)

        def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            sleep(0.004)
            return self._session.forward(tree, start, want)

    job = MeasurementJob(
        "target", "", Place("onnx", threads=threads), tuple(SAMPLE), (20,), (1, 2), 0.05
    )
    (times,), prefill_s, steady = _child._at_contexts(Waiting(calm()), job, (1, 2))
    assert not steady
    assert min(times.seconds) >= 0.004
    assert prefill_s >= 2e-4


def test_where_all_were_interrupted_the_quickest_stand_in_for_them() -> None:
    session = Slow(every(3, 5.0))
    marks = iter(range(10**6))
    found = passes.sweep(session, WIDTHS, SAMPLE, 1.0, lambda: session.now, lambda: next(marks))
    assert found.times.seconds == pytest.approx([cost(rows) for rows in found.times.widths])
    assert not found.steady


def test_a_width_that_was_never_undisturbed_is_held_to_what_wider_passes_show() -> None:
    lone = Slow(calm())
    lone._disturb = iter(lambda: 5.0 if lone.rows == 1 else 1.0, None)
    found = sweep(lone).times
    assert found.seconds[0] == pytest.approx(1.4 * cost(2))
    assert found.seconds[1:] == pytest.approx([cost(rows) for rows in found.widths[1:]])


def test_a_machine_that_never_rests_is_noticed_within_the_budget() -> None:
    session = Slow(growing())
    found = sweep(session, budget_s=0.5)
    assert not found.steady
    assert session.now < 60


def test_a_slow_model_gets_the_widths_that_matter_most() -> None:
    session = Slow(calm())
    assert set(pass_times.affordable((1, 2, 4, 8, 3, 5, 6), 1.0, 20.0)) == {1, 2, 4, 8}
    assert pass_times.affordable(WIDTHS, 0.01, 10.0) == sorted(WIDTHS)
    assert sweep(session).steady


def test_prefill() -> None:
    session = Slow(calm())
    assert passes.prefill(session, 100, SAMPLE, lambda: session.now) == pytest.approx([0.002])
    assert session.length == 100
    assert passes.prefill(session, 50, SAMPLE) == []


def test_a_long_text_is_prefilled_in_chunks() -> None:
    session = Slow(calm())
    session._session = FakeModel(vocab_size=8, max_context=9000).open(2000)
    found = passes.prefill(session, 1500, SAMPLE, lambda: session.now)
    assert found == pytest.approx([0.002] * 3)
    assert session.length == 1500
