"""A session that translates passes the contract too, and one that does it wrong does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from cross_vocabulary import Translated, permutation

from edgedec.decoding.drafting import _transcript, _translated
from edgedec.decoding.session import Model, Want
from edgedec.decoding.translation import OUTSIDE, Translation
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.testing import FakeModel, SessionContract

VOCAB, COLUMNS = 32, 45


class TestPermuted(SessionContract):
    """As many tokens on both sides, all of them common."""

    @pytest.fixture
    def model(self) -> Model:
        return Translated(FakeModel(VOCAB), permutation(VOCAB))


class TestWithinALargerVocabulary(SessionContract):
    """Columns of the draft that are no token of the target's are left out of every row."""

    @pytest.fixture
    def model(self) -> Model:
        return Translated(FakeModel(COLUMNS), permutation(VOCAB, COLUMNS))

    # Of the draft's best ids some are no token of the target's, whose own best are not asked.
    test_top_agrees_with_logits = None  # type: ignore[assignment]


class TestAroundASmallerVocabulary(SessionContract):
    """Some of the target's tokens are none of the draft's, and leave no trace."""

    @pytest.fixture
    def model(self) -> Model:
        there = [OUTSIDE] * COLUMNS
        for name, token in enumerate(np.random.default_rng(8).permutation(COLUMNS)[:VOCAB]):
            there[token] = name
        return Translated(FakeModel(VOCAB), Translation.of_ids(there, VOCAB))

    def test_what_the_draft_has_no_token_for_cannot_be_drafted(self, model: Model) -> None:
        """A softmax over such a row is the draft's own, renormalised over the common tokens."""
        logits = model.open(8).forward(TokenTree.chain(self.text(model, 3))).logits
        assert logits is not None
        assert np.isfinite(logits).sum(axis=1).tolist() == [VOCAB] * 3
        assert np.isneginf(logits).sum(axis=1).tolist() == [COLUMNS - VOCAB] * 3


class TestOtherPadding(SessionContract):
    """The same tokens, and rows that are longer."""

    @pytest.fixture
    def model(self) -> Model:
        there = [token if token < VOCAB else OUTSIDE for token in range(COLUMNS)]
        return Translated(FakeModel(VOCAB), replace(Translation.of_ids(there, VOCAB), same=True))


class TestMorePadding(SessionContract):
    """The same tokens, and rows of the draft that are longer."""

    @pytest.fixture
    def model(self) -> Model:
        own = Padded(VOCAB)
        return Translated(own, replace(Translation.of_ids(range(VOCAB), COLUMNS), same=True))


class Padded(FakeModel):
    """Rows with columns that are no token."""

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        padding = np.full(COLUMNS - VOCAB, -np.inf, dtype=np.float32)
        return np.concatenate([super().logits(tokens), padding])


def shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column holds its neighbour's logit."""
    honest = _translated._Columns.full

    def twin(self: object, logits: object, places: object) -> object:
        return np.roll(honest(self, logits, places), 1, axis=1)  # type: ignore[arg-type]

    monkeypatch.setattr(_translated._Columns, "full", twin)


def best_by_the_draft_s_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best ids stay the draft's."""
    monkeypatch.setattr(_translated._Columns, "_best", lambda self, ids, logits: (ids, logits))


def keeps_what_was_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transcript.Transcript, "_rewind", lambda self, length, pending=False: [])


def commits_whole_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rest of a path was cut off."""
    honest = _transcript.Transcript.record

    def twin(self: _transcript.Transcript, plan: object, tokens: object, ends: object) -> None:
        honest(self, plan, [*tokens, *tokens[-1:]], [*ends, *ends[-1:]])  # type: ignore[arg-type, misc]

    monkeypatch.setattr(_transcript.Transcript, "record", twin)


TWINS = {
    shifted: "test_top_agrees_with_logits",
    best_by_the_draft_s_names: "test_top_agrees_with_logits",
    keeps_what_was_rolled_back: "test_rollback_and_continue",
    commits_whole_paths: "test_rounds_follow_one_another",
}


@pytest.mark.parametrize(("twin", "test"), TWINS.items())
def test_the_contract_catches(
    twin: Callable[[pytest.MonkeyPatch], None], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin(monkeypatch)
    with pytest.raises(AssertionError):
        getattr(SessionContract(), test)(Translated(FakeModel(VOCAB), permutation(VOCAB)))


def test_columns_are_the_draft_s_own_logits_of_the_same_tokens() -> None:
    # The contract holds a session to itself; this to the model behind it.
    translation, model = permutation(VOCAB, COLUMNS), FakeModel(COLUMNS)
    session = Translated(model, translation).open(20)
    text = [3, 1, 4, 1, 5]
    session.prefill(text[:-1])
    scored = session.forward(TokenTree(text[-1]))
    own = model.logits([int(translation.to_draft[token]) for token in text])
    assert scored.logits is not None
    np.testing.assert_array_equal(scored.logits[0], own[translation.to_draft])


def test_tokens_that_the_draft_does_not_have_are_left_out_of_its_best() -> None:
    there = [5, -1, 3, -1, 0, 7]
    translation, model = Translation.of_ids(there, 12), FakeModel(12)
    session = Translated(model, translation).open(20)
    scored = session.forward(TokenTree(2), want=Want.TOP)
    assert scored.logits is None
    own = model.logits([3])
    best = [int(id) for id in np.argsort(-own)[:8] if id in there]
    found = scored.top_logits[0] > -np.inf
    assert [there[id] for id in scored.top_ids[0][found]] == best
    assert scored.top_logits[0][found].tolist() == own[best].tolist()


def test_a_draft_whose_best_are_all_unknown_has_no_idea() -> None:
    own = FakeModel(40).logits([0])
    assert 0 not in np.argsort(-own)[:8]
    worst = [id for id in np.argsort(own)[:5].tolist() if id]
    translation = Translation.of_ids([0, *worst], 40)
    scored = Translated(FakeModel(40), translation).open(9).forward(TokenTree(0), want=Want.TOP)
    ids, logits = scored.top_ids[0], scored.top_logits[0]
    assert set(ids.tolist()) <= set(range(translation.target_columns))
    assert len(set(logits.tolist())) == 1
    assert np.isfinite(logits).all()


def test_a_tokenizer_of_one_s_own_needs_no_translation() -> None:
    session = FakeModel(VOCAB).open(8)
    same = Translation.of_ids(range(VOCAB), VOCAB)
    assert _translated.translated(session, None) == (session, session.capacity)
    assert _translated.translated(session, same)[0] is not session
    same = replace(same, same=True)
    assert _translated.translated(session, same)[0] is session
