"""The fake passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import BinaryIO

import pytest

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import StateError
from edgedec.testing import FakeModel, FakeSession, SessionContract, TappedFakeModel


class TestFake(SessionContract):
    @pytest.fixture
    def model(self) -> FakeModel:
        return FakeModel(vocab_size=32)


class TestTapped(SessionContract):
    @pytest.fixture
    def model(self) -> FakeModel:
        return TappedFakeModel(vocab_size=32)


def few_branches(most: int) -> FakeModel:
    model = FakeModel(vocab_size=32)
    model.capabilities = replace(model.capabilities, branches=most)
    return model


class TestFakeOfFewBranches(SessionContract):
    """A limit, and none but chains."""

    @pytest.fixture(params=[1, 3, 40])
    def model(self, request: pytest.FixtureRequest) -> FakeModel:
        return few_branches(request.param)


class ForgetsToDropSiblings(FakeSession):
    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        self._committed += tree.tokens[: len(path)]


class RollsBackOneTooFew(FakeSession):
    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length))


class KeepsPendingOnRollback(FakeSession):
    def rollback(self, length: int) -> None:
        tree, pending = self._tree, self._pending
        super().rollback(length)
        self._tree, self._pending = tree, pending


class NoticesTooLate(FakeSession):
    """Computes a tree before it refuses its branches, as one that runs out of sequences does."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        limited, self._capabilities = self._capabilities, ANY_BRANCHES
        try:
            scored = super().forward(tree, start, want)
        finally:
            self._capabilities = limited
        limited.check_branches(tree)
        return scored


class NamesNoLimit(FakeSession):
    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        try:
            return super().forward(tree, start, want)
        except StateError as error:
            raise StateError("too much") from error


ANY_BRANCHES = FakeModel(vocab_size=32).capabilities
TOO_MANY = "test_more_branches_than_it_verifies_change_nothing"


@pytest.mark.parametrize("twin", [NoticesTooLate, NamesNoLimit])
def test_the_contract_catches_a_limit_that_is_not_kept(twin: type[FakeSession]) -> None:
    model = few_branches(3)
    model.open = lambda capacity: twin(model, capacity)  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        getattr(SessionContract(), TOO_MANY)(model)
    model.capabilities = ANY_BRANCHES  # nor is a limit that is there and was not told
    model.open = lambda capacity: FakeSession(few_branches(3), capacity)  # type: ignore[method-assign]
    with pytest.raises(StateError, match="at most 3"):
        getattr(SessionContract(), TOO_MANY)(model)


TWINS = [
    (ForgetsToDropSiblings, "test_commit_keeps_one_branch", AssertionError),
    (RollsBackOneTooFew, "test_rollback_and_continue", AssertionError),
    # The tree that is still pending makes the session itself refuse the next one.
    (KeepsPendingOnRollback, "test_rollback_drops_a_pending_tree", StateError),
]
# A random walk alone notices each of them too.
TWINS += [(twin, "test_a_random_walk", error) for twin, _, error in TWINS]


@pytest.mark.parametrize(("twin", "test", "error"), TWINS)
def test_the_contract_catches(twin: type[FakeSession], test: str, error: type[Exception]) -> None:
    class Model(FakeModel):
        def open(self, capacity: int) -> FakeSession:
            return twin(self, capacity)

    with pytest.raises(error):
        getattr(SessionContract(), test)(Model(vocab_size=32))


# -- states -------------------------------------------------------------------------------------


class ShowsThoseOfTheTokenBefore(FakeSession):
    """In a prompt; one that does so everywhere is noticed by the reference only."""

    def _prefilled(self, count: int) -> FloatArray:
        return super()._prefilled(count + 1)[:-1]


class ShowsARowTooEarly(FakeSession):
    """Of a tree that grew, the states of the nodes before."""

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        scored = super()._score(tree, start, want)
        if start and scored.states is not None:
            scored.states = super()._score(tree, 0, want).states[: len(scored.states)]  # type: ignore[index]
        return scored


class ForgetsAChunk(FakeSession):
    def _prefilled(self, count: int) -> FloatArray:
        states = super()._prefilled(count)
        return states if self._length < 10 else states[1:]


class ShowsThemUnasked(FakeSession):
    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        return super()._score(tree, start, want | Want.STATES)


class RemembersWhatIsGone(FakeSession):
    """States depend on tokens that the session no longer has."""

    gone: Sequence[int] = ()

    def _shown(self, texts: Sequence[Sequence[int]]) -> FloatArray:
        return super()._shown([[*self.gone, *text] for text in texts])


class RemembersWhatWasRolledBack(RemembersWhatIsGone):
    def _cut(self, length: int) -> None:
        self.gone = self._committed[length:]
        super()._cut(length)


class RemembersWhatWasNotForked(RemembersWhatIsGone):
    def _copy(self, length: int) -> FakeSession:
        fork = super()._copy(length)
        assert isinstance(fork, RemembersWhatIsGone)
        fork.gone = self._committed[length:]
        return fork


class RemembersWhatWasHeldBeforeLoading(RemembersWhatIsGone):
    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        self.gone = [1, 2]
        return super()._restore(payload, length, rest)


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (RemembersWhatWasRolledBack, "test_states_after_going_back"),
        (RemembersWhatWasNotForked, "test_states_after_going_back"),
        (RemembersWhatWasHeldBeforeLoading, "test_states_after_going_back"),
        (ShowsThoseOfTheTokenBefore, "test_states_of_a_prompt"),
        (ShowsARowTooEarly, "test_states_of_a_tree_that_grows"),
        (ForgetsAChunk, "test_states_of_a_prompt"),
        (ShowsThemUnasked, "test_states_are_refused_or_there"),
    ],
)
def test_the_contract_catches_wrong_states(twin: type[FakeSession], test: str) -> None:
    model = TappedFakeModel(vocab_size=32)
    model.open = lambda capacity: twin(model, capacity)  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        getattr(SessionContract(), test)(model)
