"""Prompt lookup: the index against a naive search, and what becomes of a hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from drafting_table import always
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, DraftStep
from edgedec.decoding.drafting.lookup import LONGEST, LookupDrafter, NgramIndex
from edgedec.decoding.sampling import Sampler, SamplingParams


def naive(text: Sequence[int], shortest: int, longest: int) -> tuple[int, int]:
    """Longest tail found earlier with something after it; of several the newest."""
    for length in range(min(longest, len(text) - 1), shortest - 1, -1):
        for after in range(len(text) - 1, length - 1, -1):
            if text[after - length : after] == text[len(text) - length :]:
                return after, length
    return 0, 0


texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(texts, st.integers(1, 3), st.integers(0, 4), st.lists(st.integers(1, 7), max_size=6))
def test_the_index_finds_what_a_scan_finds(
    text: list[int], shortest: int, more: int, steps: list[int]
) -> None:
    index = NgramIndex(4, shortest, shortest + more)
    growing: list[int] = text[:1]
    index.follow(growing)
    for step in [*steps, len(text)]:
        growing += text[len(growing) : len(growing) + step]
        assert index.find() == naive(growing, shortest, shortest + more)


@given(texts, texts, st.integers(0, 60))
def test_another_text_is_indexed_anew_and_a_continued_one_goes_on(
    text: list[int], other: list[int], shared: int
) -> None:
    index = NgramIndex(4)
    index.follow(text)
    index.find()
    second = text[:shared] + other
    index.follow(second)
    assert index.find() == naive(second, 2, 8)


def test_a_stale_index_is_caught() -> None:
    class Stale(NgramIndex):
        def follow(self, text: Sequence[int]) -> None:
            self._text = text

    index = Stale(4)
    index.follow([1, 2, 3, 1, 2])
    index.find()
    second = [2, 2, 1, 0, 1, 2]
    index.follow(second)
    assert index.find() != naive(second, 2, 8)


def proposal(text: list[int], nodes: int, **options: int) -> list[int]:
    drafter = LookupDrafter(16, **options)
    sampler = Sampler(SamplingParams(), 16, text)
    drafter.begin(text, sampler)
    draft = drafter.propose(text[-1], DraftLimits(nodes, nodes), always, sampler.streams)
    assert draft.tree.is_chain
    assert not draft.q
    return draft.tree.tokens[1:]


def test_the_draft_is_what_followed() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3]
    assert proposal(text, 3) == [4, 5, 6]
    assert proposal(text, 3, shortest=4) == []
    assert proposal(text, 0) == []
    # The longer match wins over the newer one, the newer one among equals.
    assert proposal([1, 2, 3, 4, 9, 2, 3, 5, 9, 1, 2, 3], 1) == [4]
    assert proposal([2, 3, 4, 9, 2, 3, 5, 9, 2, 3], 1) == [5]
    assert proposal([5], 4) == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(2, 4), st.integers(1, 20))
def test_a_period_goes_on_for_ever(period: list[int], times: int, nodes: int) -> None:
    text = period * times
    if len(text) < 3 or naive(text, 2, 8)[1] == 0:
        return
    endless = period * 40
    assert proposal(text, nodes, longest=60) == endless[len(text) : len(text) + nodes]


def test_confidence_grows_with_the_match_and_the_policy_may_stop() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter = LookupDrafter(16, rivals=("model",))
    sampler = Sampler(SamplingParams(), 16, text)
    drafter.begin(text, sampler)
    seen: list[float] = []

    def two(step: DraftStep) -> bool:
        assert step.offer.rivals == ("model",)
        assert step.offer.source == "lookup"
        seen.append(step.offer.confidence())
        return step.depth < 2

    draft = drafter.propose(3, DraftLimits(9, 9), two, sampler.streams)
    assert draft.tree.tokens == [3, 4, 5]
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] < 1


class CountedText(list[int]):
    """A text that counts the tokens read from it."""

    read = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        self.read += len(self)
        return super().__iter__()


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_a_round_reads_a_few_tokens_however_long_the_text(size: int) -> None:
    text = CountedText((i * i * 7 + i // 3) % 251 for i in range(size))
    index = NgramIndex(256)
    index.follow(text)
    index.find()
    reads = []
    for _ in range(50):
        text.append(text[-1] ^ 1)
        text.read = 0
        index.find()
        reads.append(text.read)
    # The n-grams that now have a token after them, a token more of those like them, those that end
    # the text, and a comparison of the tail with its copy.
    assert 0 < max(reads) <= 5 * LONGEST


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(drafting.InputError, match="adaptive, head, headed, hybrid, lookup"):
        drafting.create("psychic", DrafterParts(4))
    with pytest.raises(drafting.InputError):
        drafting.create("base", DrafterParts(4))


def test_what_drafters_say_about_themselves_fits_together() -> None:
    infos = {name: drafting.info(name) for name in drafting.names()}
    for name, info in infos.items():
        assert set(info.parts) <= set(infos) - {name}
        assert info.branches or not info.needs_branches
        assert info.needs_model or not (info.overlaps or info.by_text or info.needs_mask)
    for with_model in (True, False):
        found = [n for n, of in infos.items() if of.default and of.needs_model == with_model]
        assert found == [drafting.default(with_model=with_model)]
    planned = ["lookup", "recycle", "head", "model", "tree", "headed", "hybrid", "adaptive"]
    assert [name for name in drafting.planned() if name in planned] == planned
    assert drafting.info("auto") == drafting.info("psychic")
