"""A text in the draft's own tokens: what the session holds is that text, through all changes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tiny_tokenizers
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import each_once

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting._transcript import Transcript
from edgedec.decoding.drafting._translated import TranslatedSession
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, RoundFeedback
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.translation import OUTSIDE, Translation
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CannotRollback, CapacityExceeded
from edgedec.testing import FakeModel, FakeSession
from edgedec.text.spelling import Encoder
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

PAIRS = [("byte-level", "llama"), ("llama", "byte-level"), ("gemma", "llama")]
WORDS = [
    " return",
    "naïve",
    " 🙂",
    "\n\n    ",
    "dog",
    " hello world",
    "思",
    "(index, ",
    " xyz",
    "é",
]


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(tiny_tokenizers.KINDS[kind](), {"bos_token": "<s>", "eos_token": "</s>"})


@functools.cache
def translation(kind: str, other: str) -> Translation:
    return translate(tokenizer(kind), tokenizer(other))


def opened(kind: str, other: str, capacity: int = 600) -> tuple[TranslatedSession, FakeSession]:
    inner = FakeModel(tokenizer(other).vocab_size).open(capacity)
    return TranslatedSession(inner, translation(kind, other)), inner


@functools.cache
def spelled(kind: str) -> list[bytes | None]:
    own = tokenizer(kind)
    return list(own.token_bytes(own.vocab_size))


def said(kind: str, tokens: list[int]) -> bytes:
    """The text's bytes, without special tokens."""
    return b"".join(spelled(kind)[token] or b"" for token in tokens)


def check(
    session: TranslatedSession, inner: FakeSession, kind: str, other: str, *, short: bool = False
) -> None:
    """Every mark tells the truth, and what the session holds is what the transcript says.

    ``short``: the text's beginning may have been left out, and with it a mark before it.
    """
    text = session.text
    assert inner._committed == text.held
    assert len(text._marks) == len(text.tokens) + 1
    reached = [mark for mark in text._marks if mark != OUTSIDE]
    assert short or reached == sorted(reached)
    assert reached[-1] <= len(text.held)
    for index, mark in enumerate(text._marks):
        if mark != OUTSIDE:
            held, whole = said(other, text.held[:mark]), said(kind, text.tokens[:index])
            # SentencePiece puts a space in front of a text, or takes it for its own.
            if short:
                assert whole.endswith(held.lstrip(b" ")), (index, mark)
                continue
            assert held.lstrip(b" ") == whole.lstrip(b" "), (index, mark)
            assert abs(len(held) - len(whole)) <= 1


def grow(session: TranslatedSession, rng: np.random.Generator, kind: str) -> None:
    """One step of what drafters do, with tokens that may cut characters in half."""
    words = tokenizer(kind).encode("".join(rng.choice(WORDS, 3)), add_special_tokens=False)
    words = words[rng.integers(0, 3) :] or words
    step = rng.integers(0, 4)
    if step == 0:
        session.prefill(words)
    elif step == 1:
        session.rollback(int(rng.integers(0, session.length + 1)))
    else:
        tree = TokenTree.chain(words[:2])
        session.forward(tree)
        for word in words[2:5]:
            start = len(tree)
            tree.add(word, int(rng.integers(0, start)))
            session.forward(tree, start)
        if step == 2 and rng.integers(0, 2):
            session.rollback(session.length)  # what was written anew for it is lost
            return
        leaf = int(rng.integers(0, len(tree)))
        path = tree.path_to(leaf)
        session.commit(path[: int(rng.integers(0, len(path) + 1))])


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_it_holds_the_text_whatever_happens(kind: str, other: str) -> None:
    rng = np.random.default_rng(0)
    session, inner = opened(kind, other)
    for _ in range(100):
        if session.length > 100:
            session.rollback(3)
        grow(session, rng, kind)
        check(session, inner, kind, other)


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_a_prompt_is_written_as_the_draft_s_tokenizer_writes_it(kind: str, other: str) -> None:
    text = "def add(left, right):\n    return left + right  # naïve café 🙂"
    session, inner = opened(kind, other)
    session.prefill(tokenizer(kind).encode(text))
    if kind != "gemma":  # which says a space in front
        assert inner._committed == tokenizer(other).encode(text)
    check(session, inner, kind, other)


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_rows_are_those_of_the_text_so_far(kind: str, other: str) -> None:
    """After a token that only the target has too."""
    rng = np.random.default_rng(1)
    session, inner = opened(kind, other)
    found = translation(kind, other)
    session.prefill(tokenizer(kind).encode("def add(left"))
    for word in tokenizer(kind).encode("".join(rng.choice(WORDS, 12)), add_special_tokens=False):
        scored = session.forward(TokenTree(word))
        assert scored.logits is not None
        session.commit([0])
        own = inner._model.logits(inner._committed)
        np.testing.assert_array_equal(scored.logits[0][found.target_ids], own[found.draft_ids])
        assert np.isneginf(np.delete(scored.logits[0], found.target_ids)).all()
        check(session, inner, kind, other)


def test_a_branch_inside_a_draft_token_s_text() -> None:
    kind, other = PAIRS[0]
    session, inner = opened(kind, other)
    session.prefill(tokenizer(kind).encode("x"))
    half, rest, *_ = tokenizer(kind).encode("naïve", add_special_tokens=False)
    dog = tokenizer(kind).encode(" dog", add_special_tokens=False)[0]
    assert translation(kind, other).to_draft[half] == OUTSIDE
    tree = TokenTree.chain([half, rest])
    session.forward(tree)
    session.forward(tree, tree.add(dog, 0))
    session.commit([0, 2])
    check(session, inner, kind, other)
    session.forward(TokenTree(dog))
    session.commit([0])
    check(session, inner, kind, other)
    assert said(other, inner._committed) == b" x" + said(kind, [half, dog, dog])


def test_common_tokens_are_appended_and_only_others_have_text_written_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, _ = opened("byte-level", "llama")
    calls = []
    speller = translation("byte-level", "llama").speller
    honest = speller.spell

    def spell(tokens: list[int], *, first: bool) -> tuple[list[int], list[int]]:
        calls.append(list(tokens))
        return honest(tokens, first=first)

    monkeypatch.setattr(speller, "spell", spell)
    own, found = tokenizer("byte-level"), translation("byte-level", "llama")
    session.prefill(own.encode("The quick brown fox"))
    calls.clear()
    for word in own.encode(" jumps over a lazy ü dog", add_special_tokens=False):
        before = len(calls)
        session.forward(TokenTree(word))
        session.commit([0])
        assert (len(calls) > before) == (found.to_draft[word] == OUTSIDE)
    assert 0 < len(calls) < 8
    assert max(len(tokens) for tokens in calls) < 8


def test_only_what_changed_is_computed_again() -> None:
    session, inner = opened("byte-level", "llama")
    own = tokenizer("byte-level")
    session.prefill(own.encode("The quick brown fox jumps over the lazy dog. " * 5))
    held, fed = inner.length, []
    honest = inner.forward

    def forward(tree: TokenTree, *more: object) -> object:
        fed.append(len(tree))
        return honest(tree, *more)  # type: ignore[arg-type]

    inner.forward = forward  # type: ignore[method-assign, assignment]
    for word in own.encode(" ü 思思 ok", add_special_tokens=False):
        session.forward(TokenTree(word))
        session.commit([0])
    assert held > 50
    assert max(fed) <= 8


def test_a_session_that_goes_back_further_than_asked() -> None:
    class ByFours(FakeSession):
        def rollback(self, length: int) -> None:
            if length % 4:
                raise CannotRollback("by fours", length - length % 4)
            super().rollback(length)

    kind, other = PAIRS[0]
    inner = ByFours(FakeModel(tokenizer(other).vocab_size), 600)
    session = TranslatedSession(inner, translation(kind, other))
    rng = np.random.default_rng(5)
    for _ in range(60):
        if session.length > 150:
            session.rollback(2)
        grow(session, rng, kind)
        check(session, inner, kind, other)


class KeepsStaleMarks(Transcript):
    """A broken twin: marks of what was taken back stay."""

    def _rewind(self, length: int, *, pending: bool = False) -> list[int]:
        marks = self._marks[:]
        gone = super()._rewind(length, pending=pending)
        self._marks = marks
        return gone


def below_a_cut_token_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes below one that ends inside a draft token are taken for right."""
    honest = TranslatedSession._attach

    def twin(self: TranslatedSession, tree: TokenTree) -> None:
        before = len(self._exact)
        honest(self, tree)
        self._exact[before:] = [True] * (len(self._exact) - before)

    monkeypatch.setattr(TranslatedSession, "_attach", twin)


def stale_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedec.decoding.drafting._translated.Transcript", KeepsStaleMarks)


def fronts_may_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in front of a text to read on from there is cut off by its length alone."""

    def twin(self: Encoder, text: str) -> list[int]:
        return self._text("a" + text)[len(self._text("a")) :]

    monkeypatch.setattr(Encoder, "_continued", twin)


@pytest.mark.parametrize("twin", [below_a_cut_token_all_is_well, stale_marks, fronts_may_merge])
def test_a_broken_twin_is_caught(
    twin: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    twin(monkeypatch)
    with pytest.raises(AssertionError):
        everything()


def everything() -> None:
    test_a_branch_inside_a_draft_token_s_text()
    for kind, other in PAIRS:
        test_it_holds_the_text_whatever_happens(kind, other)


@settings(max_examples=examples(40))
@given(text=st.text(min_size=1, max_size=40), cut=st.integers(0, 3))
def test_any_text(text: str, cut: int) -> None:
    for kind, other in PAIRS:
        session, inner = opened(kind, other)
        tokens = tokenizer(kind).encode(text)
        session.prefill(tokens[: len(tokens) - cut])
        for token in tokens[len(tokens) - cut :]:
            session.forward(TokenTree(token))
            session.commit([0])
        check(session, inner, kind, other)


# -- at the edges: a short session, no text, special tokens --------------------------------------


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_it_holds_the_end_of_the_text(kind: str, other: str) -> None:
    rng = np.random.default_rng(7)
    session, inner = opened(kind, other, capacity=90)
    slid = 0
    for _ in range(80):
        if session.length > 60:
            session.rollback(int(rng.integers(0, 60)))
        try:
            grow(session, rng, kind)
        except CapacityExceeded:  # trees may be wider than what is always there
            session.rollback(session.length)
        check(session, inner, kind, other, short=True)
        slid += len(said(other, inner._committed)) + 2 < len(said(kind, session.text.tokens))
    assert slid or kind == "gemma"


def test_a_text_too_long_for_the_draft_loses_its_beginning() -> None:
    kind, other = "llama", "byte-level"
    session, inner = opened(kind, other, capacity=64)
    words = tokenizer(kind).encode("思" * 16)  # three bytes each, in a smaller room
    assert len(words) < 64
    session.prefill(words)
    check(session, inner, kind, other, short=True)
    assert session.length == len(words)
    assert 8 < inner.length <= 64
    check_end = said(other, inner._committed)
    assert said(kind, words).endswith(check_end.removeprefix(b" "))
    with pytest.raises(CapacityExceeded):
        session.prefill(words)
    session.rollback(4)
    session.prefill(words[4:])
    assert session.length == len(words)


@pytest.mark.parametrize("capacity", [4, 8, 24])
def test_a_draft_in_its_own_tokens_holds_the_end_of_the_text(capacity: int) -> None:
    """Also where what follows the text is longer than the room, which then holds an end of it."""
    kind, other = "byte-level", "llama"
    words = tokenizer(kind).encode(" return" * 30)  # each of several of the draft's tokens
    session, inner = opened(kind, other, capacity)
    lost = set()
    for known, count in itertools.product((0, 1), (1, 2, capacity - 2)):
        session.rollback(0)
        session.prefill(words[:known])
        new = words[known : known + count]
        computed = session.start(new, 1)
        inner.forward(TokenTree.chain(computed))
        session.finish(new, computed)
        check(session, inner, kind, other, short=True)
        assert session.length == known + count
        lost.add(len(said(other, inner._committed).lstrip()) < len(said(kind, new)))
        session.rollback(session.length - 1)  # and it goes on from there
        session.prefill(words[:1])
        check(session, inner, kind, other, short=True)
    assert lost == ({True} if capacity == 4 else {True, False})


@pytest.mark.parametrize(("name", "pair"), each_once(["model", "tree", "hybrid", "strings"], PAIRS))
def test_a_draft_with_little_room_never_ends_a_text(name: str, pair: tuple[str, str]) -> None:
    kind, other = pair
    rng = np.random.default_rng(3)
    own, found = tokenizer(kind), translation(kind, other)
    drafted = 0
    for capacity in (8, 24, 60, 90):
        inner = FakeModel(tokenizer(other).vocab_size, context=2).open(capacity)
        drafter = drafting.create(name, DrafterParts(own.vocab_size, inner, translation=found))
        text = own.encode("思" * int(rng.integers(1, 12)))
        sampler = Sampler(SamplingParams(), own.vocab_size, text)
        drafter.begin(text, sampler)
        more = own.encode("".join(rng.choice(WORDS, 60)), add_special_tokens=False)
        while more:
            draft = drafter.propose(
                sampler.history[-1], DraftLimits(70, 20), lambda step: True, sampler.streams
            )
            drafted += draft.drafted
            count = int(rng.integers(1, 12))
            drafter.observe(RoundFeedback(draft, Verdict([0], 0), None, more[:count]))  # type: ignore[arg-type]
            sampler.push(more[:count])
            more = more[count:]
            assert inner.length <= capacity
    assert drafted > 0


def test_special_tokens_say_nothing() -> None:
    """What comes after one comes after the text before it; before any text, after BOS."""
    kind, other = "byte-level", "llama"
    special = tokenizer(kind).token_id("<|end|>")
    assert special is not None
    for text in ("", "def add(left"):
        session, inner = opened(kind, other)
        ids = tokenizer(kind).encode(text)
        session.prefill(ids)
        for token in (special, special):
            scored = session.forward(TokenTree(token))
            session.commit([0])
            assert inner._committed == tokenizer(other).encode(text)
            own = inner._model.logits(inner._committed)
            assert scored.logits is not None
            found = translation(kind, other)
            np.testing.assert_array_equal(scored.logits[0][found.target_ids], own[found.draft_ids])
        check(session, inner, kind, other)
        assert session.length == len(ids) + 2


def test_before_any_text_a_draft_without_bos_gets_a_token_that_says_nothing() -> None:
    kind, other = "llama", "byte-level"
    session, inner = opened(kind, other)
    start = tokenizer(kind).token_id("<s>")
    assert start is not None
    scored = session.forward(TokenTree(start))
    assert scored.logits is not None
    own = inner._model.logits([translation(kind, other).blank])
    found = translation(kind, other)
    np.testing.assert_array_equal(scored.logits[0][found.target_ids], own[found.draft_ids])
    session.commit([0])
    words = tokenizer(kind).encode("def add(left")
    session.forward(TokenTree.chain(words[1:]))
    session.commit(range(len(words) - 1))
    assert inner._committed == tokenizer(other).encode("def add(left")
