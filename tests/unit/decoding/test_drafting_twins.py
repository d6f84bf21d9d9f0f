"""Draft sessions broken on purpose, which the checks of test_drafting_model.py must catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import test_drafting_model as checks

from edgedec.decoding.drafting._context import Scores
from edgedec.decoding.drafting._draft_context import DraftContext
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.testing import FakeModel, FakeSession


class NeverCatchesUp(DraftContext):
    def _open(self, tree: TokenTree) -> None:
        super()._open(tree)
        self._own, self._lag = tree, 0


class SeesTheWrongRows(DraftContext):
    def _forward(self, tree: TokenTree, masks):  # type: ignore[no-untyped-def]
        scores, sampler = super()._forward(tree, masks), self._sampler
        if self._lag and self._passes == 1:
            assert sampler is not None
            self._session.rollback(len(self._held))
            scored = self._session.forward(self._own, 0, Want.LOGITS)
            scores = Scores(scored, sampler.rows(scored, tree, Purpose.DRAFT), sampler)
        return scores


class KeepsRejectedTokens(DraftContext):
    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        super().keep(tree, list(range(len(tree))))


class ForgetsToRollBack(FakeSession):
    def rollback(self, length: int) -> None:
        self._tree, self._pending = None, 0


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (NeverCatchesUp, checks.test_draft_rows_are_those_of_a_fresh_session),
        (SeesTheWrongRows, checks.test_draft_rows_are_those_of_a_fresh_session),
        (
            KeepsRejectedTokens,
            lambda: checks.test_sessions_stay_right_whatever_is_accepted("model"),
        ),
    ],
)
def test_the_checks_catch_a_broken_context(
    twin: type[DraftContext], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.decoding.drafting.model.DraftContext", twin)
    with pytest.raises(AssertionError):
        test()


def test_the_checks_catch_a_session_that_does_not_roll_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeModel, "open", lambda self, capacity: ForgetsToRollBack(self, capacity))
    with pytest.raises(AssertionError):
        checks.test_a_new_prompt_reuses_what_it_shares()
