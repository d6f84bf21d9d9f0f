"""Copies from earlier texts: what is found, forgotten and kept apart, and in how much memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding import drafting
from edgedec.decoding.drafting import _earlier
from edgedec.decoding.drafting._earlier import (
    EARLIER_BYTES,
    LONGEST,
    MOST,
    EarlierTexts,
    Match,
    Texts,
    corpus_of,
)
from edgedec.decoding.drafting.base import Drafter, DrafterParts, DraftLimits, DraftStep
from edgedec.decoding.sampling import Sampler, SamplingParams

VOCAB = 50_000
HALF = MOST // 2


def fresh(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(VOCAB) for _ in range(count)]


def found(texts: Texts, text: Sequence[int], at: int) -> bool:
    """Whether what follows the first tokens of a text is known."""
    match = texts.find(text[at - LONGEST : at])
    return match.length > 5 and match.tokens[0] == text[at]


# -- the index -----------------------------------------------------------------------------------


def stands_in(texts: Sequence[Sequence[int]], tokens: list[int]) -> bool:
    """Whether these tokens stand side by side in one of the texts."""
    length = len(tokens)
    return any(
        list(text[n : n + length]) == tokens
        for text in texts
        for n in range(len(text) - length + 1)
    )


def claims(texts: Texts, tail: list[int]) -> tuple[Match, list[int]]:
    """What is found for a tail, and the copy that it says there is."""
    match = texts.find(tail)
    return match, [*tail[len(tail) - match.length :], *match.tokens] if match.length else []


few = st.lists(st.integers(0, 2), max_size=60)


@given(st.lists(few, max_size=5), st.lists(st.integers(0, 2), min_size=1, max_size=LONGEST))
def test_what_is_found_was_read(read: list[list[int]], tail: list[int]) -> None:
    texts = corpus_of(read)
    match, copy = claims(texts, tail)
    assert stands_in(read, copy) or not copy
    assert bool(match.tokens) == bool(match.length)
    assert match.length in (0, *range(3, len(tail) + 1))
    # As short a tail as is looked up is found wherever the index had a slot for it.
    ends = [text[n - 3 : n] for text in read if len(text) > 6 for n in range(3, len(text))]
    assert not match.length or tail[-3:] in ends


def test_an_index_that_compares_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    read, *tails = ([draw.randrange(3) for _ in range(LONGEST)] for _ in range(100))
    texts = corpus_of([read])
    assert all(stands_in([read], copy) for tail in tails if (copy := claims(texts, tail)[1]))
    monkeypatch.setattr(_earlier, "_alike", lambda before, tail: len(tail))
    assert not all(stands_in([read], copy) for tail in tails if (copy := claims(texts, tail)[1]))


def test_nearly_everything_is_found_and_a_text_that_is_known_takes_no_room() -> None:
    texts, text = Texts(), fresh(20_000, 1)
    texts.learn(text)
    known = sum(found(texts, text, at) for at in range(LONGEST, len(text)))
    assert known > 0.95 * len(text)
    count = texts._halves[0]._count
    texts.learn(text)
    assert texts._halves[0]._count < count + 100
    # Only what is new is kept, with the tokens before it.
    texts.learn([*text[:9000], 1, 2, 3, *text[9000:]])
    assert texts._halves[0]._count < count + 200
    assert texts.find([*text[9000 - 13 : 9000], 1, 2, 3]).tokens[0] == text[9000]


def test_a_text_may_be_learned_piece_by_piece() -> None:
    texts, text = Texts(), fresh(9000, 2)
    for n in range(0, len(text), 90):
        texts.learn(text[: n + 90], n)
    assert sum(found(texts, text, at) for at in range(LONGEST, 9000)) > 0.95 * 9000


def test_what_follows_again_and_again_is_counted_until_something_else_follows() -> None:
    texts, lead = Texts(), fresh(20, 3)
    for times in range(1, 4):
        texts.learn([*lead, 5, *fresh(20, times)])
        match = texts.find(lead[-LONGEST:])
        assert (match.tokens[0], match.times) == (5, times - 1)
    texts.learn([*lead, 6, *fresh(20, 9)])
    assert texts.find(lead[-LONGEST:])[0][0] == 6
    assert texts.find(lead[-LONGEST:]).times == 0


def test_what_a_conversation_sends_again_has_not_followed_again() -> None:
    def times(drafters: list[object]) -> int:
        earlier, text = EarlierTexts(), fresh(300, 21)
        for turn, drafter in enumerate(drafters):
            earlier.begin(drafter, "", text[: 100 + 20 * turn])
        (texts,) = earlier.begin(object(), "", [1])
        return texts.find(text[60 - LONGEST : 60]).times

    one = object()
    assert times([one] * 6) == 0
    assert times([object() for _ in range(6)]) == 5


# -- forgetting and memory -----------------------------------------------------------------------


def test_what_was_used_least_recently_is_forgotten_first() -> None:
    texts, used, unused = Texts(), fresh(2000, 4), fresh(2000, 5)
    texts.learn(used)
    texts.learn(unused)
    for seed in range(6, 6 + 2 * MOST // 20_000):
        texts.learn(fresh(20_000, seed))
        texts.learn(used)
    middle = range(100, 2000, 50)
    assert all(found(texts, used, at) for at in middle)
    assert not any(found(texts, unused, at) for at in middle)
    assert texts.size == MOST


def kept_bytes(most: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that earlier texts of many owners keep."""
    monkeypatch.setattr(_earlier, "MOST", most)
    tracemalloc.start()
    try:
        earlier = EarlierTexts()
        for owner in range(6):
            earlier.begin(None, f"owner {owner}", fresh(HALF, owner))
        earlier.begin(None, "another", [1])
        assert earlier.tokens <= most
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.full  # tracing every allocation takes seconds
def test_memory_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.5 < kept_bytes(MOST, monkeypatch) / EARLIER_BYTES < 1.05
    # A twin with another bound is caught.
    assert kept_bytes(2 * MOST, monkeypatch) > 1.3 * EARLIER_BYTES


# -- owners --------------------------------------------------------------------------------------


class Shares(EarlierTexts):
    """A twin in which all texts have one owner."""

    def begin(self, drafter: object, owner: str | None, text: Sequence[int]) -> list[Texts]:
        return super().begin(drafter, "everybody", text)


def leaks(earlier: EarlierTexts, owner: str | None) -> bool:
    """Whether a text of this owner shows what another one wrote."""
    secret, drafter = fresh(100, 7), object()
    earlier.begin(drafter, "somebody", secret)
    texts = earlier.begin(drafter, owner, [1])
    return any(found(one, secret, 60) for one in texts)


def test_owners_are_apart() -> None:
    assert leaks(EarlierTexts(), "somebody")
    assert not leaks(EarlierTexts(), "another")
    assert not leaks(EarlierTexts(), None)
    assert leaks(Shares(), "another"), "the twin must be caught"


def test_a_text_without_an_owner_is_kept_for_nobody_and_all_have_the_corpus() -> None:
    corpus, private, drafter = fresh(200, 8), fresh(200, 9), object()
    earlier = EarlierTexts(corpus_of([corpus]))
    (alone,) = earlier.begin(drafter, None, private)
    assert found(alone, corpus, 100)
    own, _ = earlier.begin(drafter, "", [1])
    assert not found(own, private, 100)
    earlier.forget()
    assert found(earlier.begin(drafter, "", [1])[1], corpus, 100)


def test_all_is_forgotten_at_once_and_texts_under_way_too() -> None:
    done, running, one, other = fresh(200, 10), fresh(200, 11), object(), object()
    earlier = EarlierTexts()
    earlier.begin(one, "", done)
    (texts,) = earlier.begin(one, "", [1])
    assert found(texts, done, 100)
    earlier.begin(other, "", running)
    earlier.forget()
    assert not found(texts, done, 100)
    (texts,) = earlier.begin(one, "", [1])
    assert not found(texts, done, 100)
    assert not found(texts, running, 100)


def test_nothing_is_kept_while_it_rests() -> None:
    text, drafter, earlier = fresh(200, 12), object(), EarlierTexts()
    earlier.rest(resting=True)
    assert earlier.begin(drafter, "", text) == []
    earlier.rest(resting=False)
    (texts,) = earlier.begin(drafter, "", [1])
    assert not found(texts, text, 100)
    earlier.begin(drafter, "", text)
    (texts,) = earlier.begin(drafter, "", [1])
    assert found(texts, text, 100)


# -- the drafter ---------------------------------------------------------------------------------


def suffix(earlier: EarlierTexts) -> Drafter:
    parts = DrafterParts(VOCAB, earlier=earlier, rivals=("model",))
    return drafting.create("suffix,lookup", parts)


def from_earlier(step: DraftStep) -> bool:
    return step.offer.source == "suffix"


def proposal(drafter: Drafter, text: list[int], nodes: int, owner: str | None = "") -> list[int]:
    sampler = Sampler(SamplingParams(), VOCAB, text, owner=owner)
    drafter.begin(text, sampler)
    draft = drafter.propose(text[-1], DraftLimits(nodes, nodes), from_earlier, sampler.streams)
    assert draft.tree.is_chain
    assert not draft.q
    return draft.tree.tokens[1:]


def test_the_draft_is_what_followed_in_an_earlier_text() -> None:
    text = fresh(300, 13)
    drafter = suffix(EarlierTexts())
    assert proposal(drafter, text, 9) == []
    assert proposal(drafter, text[50:60], 9) == text[60:69]
    assert proposal(drafter, text[:100], 40) == text[100:140], "a match is looked up as it ends"
    assert proposal(drafter, text[50:60], 0) == []
    assert proposal(drafter, text[50:60], 9, "another") == []
    assert proposal(drafter, text[50:60], 9, None) == []


def test_the_text_itself_counts_where_it_has_as_long_a_copy() -> None:
    one, other, three = fresh(40, 14), fresh(40, 15), fresh(3, 16)
    earlier = EarlierTexts(corpus_of([[*one, *three, 1, *other]]))
    drafter = suffix(earlier)
    assert proposal(drafter, [*three, 2, *other, *three], 1) == []
    assert proposal(drafter, [*three, 2, *other, *one[-2:], *three], 1) == [1]
    assert proposal(drafter, [*one[-9:], *three, 2, *other, *one[-9:], *three], 1) == []


def test_confidence_grows_with_the_copy_and_with_how_often_it_was_right() -> None:
    def first(times: int, length: int) -> float:
        earlier, seen = EarlierTexts(corpus_of([text] * times)), []

        def look(step: DraftStep) -> bool:
            assert (step.offer.source, *step.offer.rivals) == ("suffix", "lookup", "model")
            seen.append(step.offer.confidence())
            return True

        drafter, prompt = suffix(earlier), text[50 - length : 50]
        sampler = Sampler(SamplingParams(), VOCAB, prompt)
        drafter.begin(prompt, sampler)
        drafter.propose(prompt[-1], DraftLimits(4, 4), look, sampler.streams)
        assert seen == sorted(seen)
        return seen[0]

    text = fresh(100, 17)
    assert 0.5 < first(1, 4) < first(1, 12) < first(4, 12) < 1


def test_it_is_part_of_what_auto_stands_for_where_texts_are_kept() -> None:
    for with_model in (False, True):
        assert "suffix" in drafting.info(drafting.default(with_model=with_model)).parts
    parts = DrafterParts(VOCAB, earlier=EarlierTexts())
    assert drafting.create("text", parts).arms == ("suffix", "lookup", "recycle")  # type: ignore[attr-defined]
    assert drafting.create("text", DrafterParts(VOCAB)).arms == ("lookup", "recycle")  # type: ignore[attr-defined]


def test_alone_it_drafts_from_earlier_texts_alone_and_from_none_if_none_are_kept() -> None:
    one = fresh(40, 22)
    text = [*one, *one[:12]]
    for earlier, drafts in ((EarlierTexts(corpus_of([text])), one[12:16]), (None, [])):
        alone = drafting.create("suffix", DrafterParts(VOCAB, earlier=earlier))
        assert proposal(alone, text, 4) == drafts
        both = drafting.create("suffix,lookup", DrafterParts(VOCAB, earlier=earlier))
        assert proposal(both, text, 4) == [], "the text itself has as long a copy"
