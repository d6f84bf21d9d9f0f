"""A session with a state of fixed size passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgedec.decoding.session import Model, Rollback
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CannotRollback
from edgedec.testing import HybridFakeModel, SessionContract
from edgedec.testing.hybrid import FakeMemory, FakeState


class TestHybridFake(SessionContract):
    @pytest.fixture
    def model(self) -> HybridFakeModel:
        return HybridFakeModel(vocab_size=32)

    def test_rejecting_takes_no_pass(self, model: HybridFakeModel) -> None:
        assert model.capabilities.rollback is Rollback.RECENT
        assert model.capabilities.rejected is None
        tokens, chain = self.text(model, 9), TokenTree.chain(self.text(model, 5, seed=2))
        for kept in range(6):
            session = model.open(64)
            session.prefill(tokens)
            session.forward(chain)
            memory = session._memory
            before, rows = memory.state, memory.rows
            session.commit(range(kept))
            # Nothing was computed again: only how many rows of the pass are kept has changed.
            assert (memory.state, memory.rows, memory.kept) == (before, rows, kept)
            session.rollback(9)  # and again
            assert memory.kept == 0
            self.check_next(model, session, tokens)

    def test_a_length_far_back_is_the_end_of_the_prompt(self, model: HybridFakeModel) -> None:
        tokens, session = self.text(model, 20), model.open(600)
        session.prefill_chunk = 32
        session.prefill(tokens)
        held = list(tokens)
        for token in self.text(model, 300, seed=2):
            session.forward(TokenTree(token))
            session.commit([0])
            held.append(token)
        with pytest.raises(CannotRollback, match="to 250 tokens: 20 is possible") as caught:
            session.rollback(250)
        assert caught.value.nearest == 20
        assert session.length == 320
        self.back(model, session, held, 250)
        self.check_next(model, session, held[:250])


class OneRowAhead(FakeMemory):
    """Commits a row that was rejected."""

    def now(self) -> FakeState:
        return self.state.after(self.rows[: self.kept + 1])


class DropsAPendingRow(FakeMemory):
    """Begins a pass without the last row that was kept of the one before."""

    def begin(self) -> None:
        self.kept = max(self.kept - 1, 0)
        super().begin()


class WindowOffByOne(FakeMemory):
    """Reads a convolution's window from a token too early."""

    def now(self) -> FakeState:
        found = super().now()
        earlier = self.state.after(self.rows[: max(self.kept - 1, 0)])
        return FakeState(found.digest, earlier.window)


class FoldsWhatWasAlsoPending(FakeMemory):
    """Forgets that rows were kept when a pending chain grows."""

    def add(self, tokens: Sequence[int]) -> None:
        self.rows, self.kept = tuple(tokens), len(tokens)


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (OneRowAhead, "test_commit_of_part_of_a_path"),
        (OneRowAhead, "test_rollback_drops_a_pending_tree"),
        (DropsAPendingRow, "test_prefill_continues_where_the_cache_ends"),
        (DropsAPendingRow, "test_commit_of_part_of_a_path"),
        (WindowOffByOne, "test_a_pending_tree_grows"),
        (WindowOffByOne, "test_rounds_follow_one_another"),
        (FoldsWhatWasAlsoPending, "test_a_pending_tree_grows"),
        *((twin, "test_a_random_walk") for twin in (OneRowAhead, DropsAPendingRow, WindowOffByOne)),
    ],
)
def test_the_contract_catches(twin: type[FakeMemory], test: str) -> None:
    model = HybridFakeModel(vocab_size=32)
    getattr(SessionContract(), test)(model)
    broken: Model = HybridFakeModel(vocab_size=32)
    broken.memory = twin  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        getattr(SessionContract(), test)(broken)
