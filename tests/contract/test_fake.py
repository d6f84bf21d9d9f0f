"""The fake passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgedec.testing import FakeModel, FakeSession, SessionContract


class TestFake(SessionContract):
    @pytest.fixture
    def model(self) -> FakeModel:
        return FakeModel(vocab_size=32)


class ForgetsToDropSiblings(FakeSession):
    def commit(self, path: Sequence[int]) -> None:
        assert self._tree is not None
        self._committed += self._tree.tokens[: len(path)]
        self._tree, self._pending = None, 0


class RollsBackOneTooFew(FakeSession):
    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length))


class KeepsPendingOnRollback(FakeSession):
    def rollback(self, length: int) -> None:
        tree, pending = self._tree, self._pending
        super().rollback(length)
        self._tree, self._pending = tree, pending


TWINS = {
    ForgetsToDropSiblings: "test_commit_keeps_one_branch",
    RollsBackOneTooFew: "test_rollback_and_continue",
    KeepsPendingOnRollback: "test_rollback_drops_a_pending_tree",
}


@pytest.mark.parametrize(("twin", "test"), TWINS.items())
def test_the_contract_catches(twin: type[FakeSession], test: str) -> None:
    class Model(FakeModel):
        def open(self, capacity: int) -> FakeSession:
            return twin(self, capacity)

    with pytest.raises(Exception):  # noqa: B017 - a broken twin may fail in any way
        getattr(SessionContract(), test)(Model(vocab_size=32))
