"""Drafts as text: what the drafter draws, keeps and proposes."""

from __future__ import annotations

import functools
import io
from dataclasses import replace

import numpy as np
import pytest
import tiny_tokenizers
from cross_vocabulary import Respelled, Translated, permutation

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, Evictable, states_of
from edgedec.decoding.drafting.strings import StringsDrafter
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.translation import Translation
from edgedec.errors import InputError, Interrupted, StateError
from edgedec.testing import FakeModel, FakeSession
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

VOCAB = 24
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
GREEDY, HOT = SamplingParams(), SamplingParams(temperature=1.1, seed=4)


class Table:
    """A target, and a draft that is the same model under other names: it knows all."""

    def __init__(self, *, capacity: int = 400, knows: float = 1.0) -> None:
        self.target = FakeModel(VOCAB, context=3, sharpness=2.0)
        known = FakeModel(VOCAB, seed=5, context=3, like=(self.target, knows))
        there = permutation(VOCAB)
        names = [0] * VOCAB
        for token, name in enumerate(there.to_draft.tolist()):
            names[name] = token
        self.inner = known
        self.session = Translated(known, Translation.of_ids(names, VOCAB)).open(capacity)
        self.drafter = drafting.create(
            "strings", DrafterParts(VOCAB, self.session, translation=there)
        )

    def decode(
        self,
        params: SamplingParams = GREEDY,
        *,
        prompt: list[int] = PROMPT,
        count: int = 60,
        rule: str = "coupling",
        length: int = 3,
    ) -> tuple[list[int], Metrics]:
        chosen = acceptance.rule(rule)
        engine = Engine(self.target.open(4000), self.drafter, Fixed(length), chosen)
        sampler = Sampler(params, VOCAB, prompt, coupled=chosen.coupled)
        metrics = Metrics()
        request = Request(prompt, sampler, StopRule(max_new_tokens=count))
        return [e.token for round in engine.run(request, metrics) for e in round], metrics

    def plain(self, params: SamplingParams, count: int = 60) -> list[int]:
        table = Table()
        table.drafter = drafting.create("none", DrafterParts(VOCAB))
        return table.decode(params, count=count)[0]


@pytest.mark.parametrize("params", [GREEDY, HOT], ids=["greedy", "hot"])
def test_who_knows_all_is_always_right(params: SamplingParams) -> None:
    """Also when sampling: common tokens are drawn with the target's noise for their place."""
    table = Table()
    tokens, metrics = table.decode(params)
    assert tokens == table.plain(params)
    assert metrics.accepted_tokens == metrics.drafted_tokens > 40


def test_a_draft_that_was_evicted_reads_the_text_again_and_is_right() -> None:
    """As under memory pressure, every few rounds in the middle of a text."""
    table = Table()
    assert isinstance(table.drafter, Evictable)
    engine = Engine(table.target.open(4000), table.drafter, Fixed(3), acceptance.rule("coupling"))
    sampler, metrics = Sampler(GREEDY, VOCAB, PROMPT), Metrics()
    tokens = []
    request = Request(PROMPT, sampler, StopRule(max_new_tokens=60))
    for turn, emitted in enumerate(engine.run(request, metrics)):
        tokens += [one.token for one in emitted]
        if turn % 4 == 2:
            table.drafter.evict()
            assert table.session.length == 0
    assert tokens == table.plain(GREEDY)
    # Reading a long text again takes a round without a draft; what is drafted is right.
    assert metrics.accepted_tokens == metrics.drafted_tokens > 20


def test_noise_for_another_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    honest = Streams.noise

    def later(self: Streams, position: int, size: int, purpose: Purpose, index: int = 0) -> object:
        return honest(self, position + (purpose is Purpose.DRAFT), size, purpose, index)

    monkeypatch.setattr(Streams, "noise", later)
    metrics = Table().decode(HOT)[1]
    assert metrics.accepted_tokens < 0.7 * metrics.drafted_tokens


def test_a_round_costs_as_many_passes_as_tokens_and_computes_nothing_twice() -> None:
    table = Table()
    fed: list[int] = []
    inner = table.session.inner  # type: ignore[attr-defined]
    honest = inner.forward

    def forward(tree: object, start: int = 0, *more: object) -> object:
        fed.append(len(tree) - start)  # type: ignore[arg-type]
        return honest(tree, start, *more)

    inner.forward = forward
    _, metrics = table.decode()
    assert table.inner.passes == metrics.drafted_tokens == len(fed)
    # All was accepted: a round begins with its root and the last token it drafted before.
    assert sum(fed) - len(PROMPT) <= metrics.drafted_tokens + metrics.target_passes


def test_what_the_target_changed_is_computed_again() -> None:
    table = Table(knows=0.6)
    tokens, metrics = table.decode(count=120)
    assert tokens == table.plain(GREEDY, 120)
    assert 0.1 * metrics.drafted_tokens < metrics.accepted_tokens < metrics.drafted_tokens
    drafter = table.drafter
    assert isinstance(drafter, StringsDrafter)
    assert drafter._session.text.held == table.session.text.tokens  # type: ignore[attr-defined]


def test_a_new_prompt_reuses_what_it_shares() -> None:
    table = Table()
    table.decode(count=8)
    before = table.inner.passes
    tokens, _ = table.decode(prompt=[*PROMPT, 7], count=20)
    assert table.inner.passes > before
    assert tokens == Table().decode(prompt=[*PROMPT, 7], count=20)[0]


def test_what_it_read_is_saved_with_the_text() -> None:
    table, other, file = Table(), Table(), io.BytesIO()
    text = [*PROMPT, *table.decode(count=20)[0]]
    states_of(table.drafter)["draft"].save(file)
    file.seek(0)
    states_of(other.drafter)["draft"].load(file, text[:-1])
    read: list[int] = []
    prefill = other.session.prefill
    other.session.prefill = lambda tokens, *more: (read.extend(tokens), prefill(tokens, *more))[1]  # type: ignore[method-assign]
    tokens, metrics = other.decode(prompt=text, count=20)
    assert tokens == Table().decode(prompt=text, count=20)[0]
    assert metrics.accepted_tokens == metrics.drafted_tokens > 0
    assert len(read) < len(PROMPT)  # a draft that has nothing reads all of the text but its end


def test_beyond_its_context_the_draft_sees_the_end_of_the_text() -> None:
    table = Table(capacity=32)
    tokens, metrics = table.decode(HOT, count=150)
    assert tokens == table.plain(HOT, 150)
    # The model looks at the last three tokens only, so that it still knows all.
    assert metrics.accepted_tokens == metrics.drafted_tokens > 90


def test_a_long_prompt_is_read_over_several_rounds() -> None:
    table = Table(capacity=3000)
    prompt = [n % VOCAB for n in range(1200)]
    sampler = Sampler(GREEDY, VOCAB, prompt)
    table.drafter.begin(prompt, sampler)
    drafted = []
    for _ in range(4):
        draft = table.drafter.propose(
            prompt[-1], DraftLimits(3, 3), lambda step: True, sampler.streams
        )
        drafted.append(draft.drafted)
    assert drafted == [0, 0, 3, 3]


def test_interrupted_and_used_again() -> None:
    table = Table()
    inner = table.session.inner  # type: ignore[attr-defined]
    assert isinstance(inner, FakeSession)
    for _ in range(3):
        inner.interrupt()
        with pytest.raises(Interrupted):
            table.decode(count=20)
        tokens, metrics = table.decode(count=20)
        assert tokens == table.plain(GREEDY, 20)
        assert metrics.accepted_tokens == metrics.drafted_tokens


@pytest.mark.parametrize("rule", ["match", "speculative"])
def test_without_coupled_noise_it_proposes_what_it_finds_likeliest(rule: str) -> None:
    """Nothing is drawn, so there is no q to report."""
    table = Table()
    sampler = Sampler(HOT, VOCAB, PROMPT, coupled=False)
    table.drafter.begin(PROMPT, sampler)
    draft = table.drafter.propose(PROMPT[-1], DraftLimits(3, 3), lambda step: True, sampler.streams)
    assert draft.q == {}
    text = list(PROMPT)
    for token in draft.tree.tokens[1:]:
        assert token == table.target.logits(text).argmax()
        text.append(token)
    assert table.decode(HOT, rule=rule)[1].accepted_tokens > 5


def test_the_policy_sees_how_sure_the_draft_is() -> None:
    table, seen = Table(), []
    sampler = Sampler(GREEDY, VOCAB, PROMPT)
    table.drafter.begin(PROMPT, sampler)

    def go_on(step: object) -> bool:
        seen.append((step.depth, step.offer.confidence()))  # type: ignore[attr-defined]
        return len(seen) < 3

    draft = table.drafter.propose(PROMPT[-1], DraftLimits(9, 9), go_on, sampler.streams)
    assert draft.drafted == 2
    assert draft.passes == 3
    assert [depth for depth, _ in seen] == [0, 1, 2]
    # The draft says what the target says, and its best eight tokens are all that it looks at.
    for depth, confidence in seen:
        best = np.sort(table.target.logits([*PROMPT, *draft.tree.tokens[1 : depth + 1]]))[-8:]
        p = np.exp(best.astype(float)) / np.exp(best.astype(float)).sum()
        assert confidence == pytest.approx(p.max(), rel=1e-5)
    assert len({confidence for _, confidence in seen}) == 3


def test_closing_it_closes_its_session() -> None:
    table = Table()
    table.drafter.close()
    with pytest.raises(StateError, match="closed"):
        table.session.prefill([1])


def test_it_needs_a_draft_and_another_vocabulary() -> None:
    with pytest.raises(InputError, match="draft model"):
        drafting.create("strings", DrafterParts(4))
    with pytest.raises(InputError, match="use 'hybrid'"):
        drafting.create("strings", DrafterParts(4, FakeModel(4).open(9)))


@functools.cache
def words() -> tuple[Tokenizer, Tokenizer]:
    one, other = tiny_tokenizers.byte_level(), tiny_tokenizers.llama()
    return Tokenizer(one, {}), Tokenizer(other, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize(("level", "source"), [("token", "model"), ("string", "strings")])
def test_hybrid_drafts_as_the_translation_says(level: str, source: str) -> None:
    own, other = words()
    translation = replace(translate(own, other), level=level)
    draft = Respelled(FakeModel(own.vocab_size), own, other)
    prompt = own.encode("def add(left, right):")
    built = drafting.create(
        "hybrid", DrafterParts(own.vocab_size, draft.open(200), translation=translation)
    )
    sampler = Sampler(GREEDY, own.vocab_size, prompt)
    built.begin(prompt, sampler)
    found = built.propose(prompt[-1], DraftLimits(3, 3), lambda step: True, sampler.streams)
    assert found.source == source
