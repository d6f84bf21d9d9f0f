"""Drafts from another vocabulary at the edges: a short session, no text, special tokens."""

from __future__ import annotations

import numpy as np
import pytest
from test_transcript import PAIRS, WORDS, check, grow, opened, said, tokenizer, translation

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, RoundFeedback
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CapacityExceeded
from edgedec.testing import FakeModel


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


@pytest.mark.parametrize("name", ["model", "tree", "hybrid", "strings"])
@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_a_draft_with_little_room_never_ends_a_text(kind: str, other: str, name: str) -> None:
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
