"""Drafts from another vocabulary whose session is short: what they see, and that they go on."""

from __future__ import annotations

import numpy as np
import pytest
from test_transcript import PAIRS, WORDS, opened, said, tokenizer, translation

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import DraftLimits, RoundFeedback
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.errors import CapacityExceeded
from edgedec.testing import FakeModel


def test_a_text_too_long_for_the_draft_loses_its_beginning() -> None:
    kind, other = "llama", "byte-level"
    session, inner = opened(kind, other, capacity=64)
    words = tokenizer(kind).encode("思" * 16)  # three bytes each, in a smaller room
    assert len(words) < 64
    session.prefill(words)
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
        drafter = drafting.create(name, vocab_size=own.vocab_size, draft=inner, translation=found)
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
