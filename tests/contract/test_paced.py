"""A paced model passes the contract, takes the time it is held to, and tells its phases."""

from __future__ import annotations

from time import sleep

import numpy as np
import pytest

from edgedec.decoding.session import Model, OnPhase, Pass, Phase, StreamedSession, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import Interrupted
from edgedec.testing import FakeModel, PacedModel, PacedSession, SessionContract
from tests.virtual_time import VirtualClock


class TestPaced(SessionContract):
    @pytest.fixture
    def model(self) -> Model:
        return PacedModel(FakeModel(vocab_size=32), lambda rows, context: 2e-4)


class TestStreamed(SessionContract):
    """Weights load before each pass."""

    @pytest.fixture
    def model(self) -> Model:
        return PacedModel(FakeModel(vocab_size=32), lambda rows, context: 1e-4, load_s=1e-4)


def seconds(rows: int, context: int) -> float:
    return 2e-3 * rows + 1e-4 * context


def test_a_pass_takes_its_time() -> None:
    clock = VirtualClock()
    session = PacedModel(FakeModel(vocab_size=32), seconds, clock).open(64)
    session.prefill(list(range(10)))
    for rows in (1, 4, 8):
        begin = clock.now()
        session.forward(TokenTree.chain([0] * rows))
        assert clock.now() - begin == pytest.approx(seconds(rows, 10))
        session.rollback(10)


def test_the_model_s_own_time_is_part_of_a_pass() -> None:
    clock, computing = VirtualClock(), FakeModel(vocab_size=32)
    own = PacedModel(computing, seconds, clock)
    session = PacedModel(own, lambda rows, context: 0.5, clock).open(64)
    ends = []
    for _ in range(4):
        session.forward(TokenTree(0))
        session.rollback(0)
        ends.append(clock.now())
    # How long the model computes is known after the first pass.
    first = 0.5 + seconds(1, 0)
    assert ends == pytest.approx([first, first + 0.5, first + 1.0, first + 1.5])


def test_a_prompt_takes_its_time_chunk_by_chunk() -> None:
    clock, ends = VirtualClock(), list[float]()
    session = PacedModel(FakeModel(vocab_size=32), seconds, clock).open(64)
    session.prefill([0] * 10, lambda done, total: ends.append(clock.now()))
    # The fake reads four at a time.
    chunks = [seconds(4, 0), seconds(4, 4), seconds(2, 8)]
    assert ends == pytest.approx([sum(chunks[:count]) for count in (1, 2, 3)])


def test_an_interrupted_pass_ends_at_once() -> None:
    with VirtualClock() as clock:
        session = PacedModel(FakeModel(vocab_size=32), lambda *_: 30.0, clock).open(64)

        def stop() -> None:
            clock.sleep(0.02)
            session.interrupt()

        clock.start(stop, name="a reader")
        with pytest.raises(Interrupted):
            session.forward(TokenTree(0))
        assert clock.now() == pytest.approx(0.02)


def test_only_a_streamed_one_is_streamed() -> None:
    model = FakeModel(vocab_size=32)
    assert PacedModel(model, seconds, load_s=0.0).capabilities.phases
    assert not PacedModel(model, seconds).capabilities.phases
    assert isinstance(PacedModel(model, seconds, load_s=0.0).open(8), StreamedSession)


class ComputesFirst(PacedSession):
    def watch(self, on_phase: OnPhase | None) -> None:
        swapped = {Phase.LOAD: Phase.COMPUTE, Phase.COMPUTE: Phase.LOAD}
        super().watch(on_phase and (lambda phase: on_phase(swapped[phase])))


class KeepsTelling(PacedSession):
    def watch(self, on_phase: OnPhase | None) -> None:
        if on_phase is not None:
            super().watch(on_phase)


class Deaf(PacedSession):
    def interrupt(self) -> None:
        pass


BUFFER = np.empty((64, 32), np.float32)


class OneBufferForAll(PacedSession):
    """Sessions that share where their rows are written to."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        scored = self._session.forward(tree, start, want)
        rows = BUFFER[: len(scored.top_ids)]
        rows[:] = scored.logits
        sleep(3e-3)
        return Pass(start, scored.top_ids, scored.top_logits, rows)


TWINS = {
    ComputesFirst: "test_phases_are_told_in_order",
    KeepsTelling: "test_phases_are_told_in_order",
    OneBufferForAll: "test_two_sessions_compute_at_once",
}


@pytest.mark.parametrize(("twin", "test"), TWINS.items())
def test_the_contract_catches(twin: type[PacedSession], test: str) -> None:
    class Twins(PacedModel):
        def open(self, capacity: int) -> PacedSession:
            return twin(self, self._model.open(capacity))

    model = Twins(FakeModel(vocab_size=32), lambda rows, context: 1e-4, load_s=1e-4)
    with pytest.raises(AssertionError):
        getattr(SessionContract(), test)(model)


def test_the_contract_catches_who_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twins(PacedModel):
        def open(self, capacity: int) -> PacedSession:
            return Deaf(self, self._model.open(capacity))

    monkeypatch.setattr("edgedec.testing._threads._SECONDS", 0.2)
    session: list[Deaf] = []
    model = Twins(FakeModel(vocab_size=32), lambda rows, context: 1e-4)
    honest = model.open
    model.open = lambda capacity: session.append(honest(capacity)) or session[-1]  # type: ignore[method-assign, func-returns-value, arg-type, return-value]
    try:
        with pytest.raises(AssertionError, match="went on"):
            SessionContract().test_interrupted_from_another_thread(model)
    finally:
        PacedSession.interrupt(session[0])  # its thread ends
