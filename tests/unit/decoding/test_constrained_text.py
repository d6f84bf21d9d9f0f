"""Constrained decoding: the same text with and without speculation, and only allowed text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from kinds import each_once

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.constraint import BoolArray
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.session import Pass
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError
from edgedec.hardware.clock import WallClock
from edgedec.overlap.engine import LookaheadDrafter, OverlappedEngine
from edgedec.overlap.lookahead import Lookahead
from edgedec.testing import FakeModel, TableConstraint, decoding
from edgedec.testing.decoding import Outcome

VOCAB, EOS = 12, 11
PROMPT = [1, 2, 3, 4, 1, 2, 3]
TARGET = FakeModel(VOCAB, seed=1, context=3, sharpness=1.5)
DRAFT = FakeModel(VOCAB, seed=2, context=3, like=(TARGET, 0.8), sharpness=1.5)
DRAFTERS = ["model", "tree", "lookup", "recycle", "hybrid", "adaptive"]
# Items between brackets, of which an end is forced; a text of several lists.
TABLE = {
    0: {0: 1},
    1: dict.fromkeys(range(3, 9), 2),
    2: {9: 3},
    3: {2: 1, 1: 4, 10: 6},
    4: {EOS: 5, 0: 1},
    6: {2: 7},
    7: {0: 8},
    8: {9: 3},
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, penalties": {"repetition_penalty": 1.4, "logit_bias": {1: -2.0}},
    "temperature": {"temperature": 0.9, "seed": 7},
    "filters": {"temperature": 1.5, "top_k": 5, "top_p": 0.8, "min_p": 0.02, "seed": 10},
    "penalties": {"temperature": 0.8, "seed": 3, "frequency_penalty": 0.6},
}
ENDS: list[dict[str, Any]] = [
    {"max_new_tokens": 40},
    {"max_new_tokens": 7},
    {"max_new_tokens": 40, "stop_strings": ("kca", "jcaj", "jb")},
]
Twin = Callable[[Sampler], None]


def engine(drafter: str, rule: str = "coupling", draft: FakeModel = DRAFT, **parts: Any) -> Engine:
    built = drafting.create(drafter, DrafterParts(VOCAB, draft.open(256), **parts))
    policy = Fixed(0) if drafter == "none" else Fixed(5, depth=3)
    return Engine(TARGET.open(256), built, policy, acceptance.rule(rule))


def decode(
    on: Engine,
    params: SamplingParams,
    end: dict[str, Any],
    *,
    logprobs: int | None = None,
    twin: Twin | None = None,
    table: Any = TABLE,
) -> tuple[Outcome, Metrics]:
    constraint = TableConstraint(table, VOCAB)
    coupled = on.rule.coupled
    sampler = Sampler(params, VOCAB, PROMPT, coupled=coupled, constraint=constraint)
    if twin is not None:
        twin(sampler)
    stop = StopRule(eos_ids=(EOS,), stream=decoding.Letters(), **end)
    metrics = Metrics()
    return decoding.decode(on, Request(PROMPT, sampler, stop, logprobs), metrics), metrics


@functools.cache
def plain(sampler: str, logprobs: int | None) -> list[Outcome]:
    params = SamplingParams(**SAMPLERS[sampler])
    return [decode(engine("none"), params, end, logprobs=logprobs)[0] for end in ENDS]


def valid(tokens: Sequence[int]) -> bool:
    state: int | None = 0
    for token in tokens:
        state = None if state is None else TABLE.get(state, {}).get(token)
    return state is not None


def same_everywhere(make: Callable[[], Engine], *, twin: Twin | None = None) -> Metrics:
    """Compare with plain decoding in every case; return the figures of all texts together."""
    total = Metrics()
    for name, logprobs in itertools.product(SAMPLERS, (None, 2)):
        params = SamplingParams(**SAMPLERS[name])
        for end, expected in zip(ENDS, plain(name, logprobs), strict=True):
            found, metrics = decode(make(), params, end, logprobs=logprobs, twin=twin)
            assert found == expected, (name, logprobs, end)
            total.drafted_tokens += metrics.drafted_tokens
            total.accepted_tokens += metrics.accepted_tokens
            total.forced_tokens += metrics.forced_tokens
    return total


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_same_with_and_without_speculation(drafter: str) -> None:
    total = same_everywhere(lambda: engine(drafter))
    # Lookup's drafts are cut where the table refuses them, and happen to be right before.
    assert 0 < total.accepted_tokens < total.drafted_tokens + (drafter == "lookup")
    assert total.forced_tokens, "what is forced is not run ahead"


@pytest.mark.parametrize("drafter", ["model", "tree", "recycle"])
def test_the_same_for_a_draft_with_noise_of_its_own(drafter: str) -> None:
    same_everywhere(lambda: engine(drafter, "match"))


def test_the_same_with_a_draft_that_lacks_most_tokens() -> None:
    """Often it has none of the allowed ones."""
    part = Translation.of_ids([0, 1, -1, 3, -1, -1, -1, 7, -1, -1, -1, 11], VOCAB)
    for drafter in ("model", "tree", "strings"):
        same_everywhere(functools.partial(engine, drafter, translation=part))


def test_the_same_while_the_target_verifies() -> None:
    def overlapped() -> OverlappedEngine:
        clock = WallClock()
        ahead = Lookahead(DrafterParts(VOCAB, DRAFT.open(256)), clock)
        drafter = LookaheadDrafter(ahead, clock)
        rule = acceptance.rule("coupling")
        return OverlappedEngine(TARGET.open(256), drafter, Fixed(4), rule, clock)

    one = overlapped()
    try:
        # A busy machine may leave the draft's thread no turn.
        assert any(same_everywhere(lambda: one).drafted_tokens for _ in range(20))
    finally:
        one.drafter.close()


@pytest.mark.parametrize(
    ("drafter", "rule"), each_once(DRAFTERS, ["coupling", "match", "speculative", "bild"])
)
def test_every_rule_writes_allowed_text_only(drafter: str, rule: str) -> None:
    for name, seed in itertools.product(("temperature", "filters"), range(6)):
        params = SamplingParams(**{**SAMPLERS[name], "seed": seed})
        found, _ = decode(engine(drafter, rule), params, ENDS[0])
        assert valid(found.tokens)


def test_every_end_is_met() -> None:
    """Otherwise the comparisons would say nothing of it."""
    assert {one.reason for name in SAMPLERS for one in plain(name, None)} == {
        "eos",
        "stop",
        "length",
    }


def test_forced_tokens_need_no_pass() -> None:
    """Eight tokens in a row, then the end: three drafted, one drawn, five forced."""
    table = {place: {place + 1: place + 1} for place in range(8)} | {8: {EOS: 9}}
    on = engine("model")
    found, metrics = decode(on, SamplingParams(), ENDS[0], table=table)
    assert found.tokens == [*range(1, 9), EOS]
    assert (metrics.target_passes, metrics.forced_tokens) == (1, 5)
    plainly, slow = decode(engine("none"), SamplingParams(), ENDS[0], table=table)
    assert (plainly, slow.target_passes) == (found, 9)
    again = decode(on, SamplingParams(), ENDS[0])[0]  # what the target holds is what was read
    assert again == plain("greedy", None)[0]


def test_a_text_may_end_inside_what_is_forced() -> None:
    table = {place: {place + 1: place + 1} for place in range(8)} | {8: {EOS: 9}}
    for limit in range(1, 9):
        found, _ = decode(engine("model"), SamplingParams(), {"max_new_tokens": limit}, table=table)
        assert (found.tokens, found.reason) == ([*range(1, limit + 1)], "length")
    stopped = {"max_new_tokens": 40, "stop_strings": ("de",)}
    found, _ = decode(engine("model"), SamplingParams(), stopped, table=table)
    assert (found.text, found.reason) == ("bc", "stop")


def test_forced_tokens_fill_the_context_and_no_more() -> None:
    table = {place: {place % 9: (place + 1) % 9} for place in range(9)}
    built = drafting.create("recycle", DrafterParts(VOCAB))
    for capacity in range(len(PROMPT), 30):
        on = Engine(TARGET.open(capacity), built, Fixed(5), acceptance.rule())
        room = on.room(PROMPT)
        found, _ = decode(on, SamplingParams(), {"max_new_tokens": room}, table=table)
        assert found.tokens == [place % 9 for place in range(room)]


def test_a_dead_end_is_said() -> None:
    with pytest.raises(InputError, match="allows nothing in state 2"):
        decode(engine("model"), SamplingParams(), ENDS[0], table={0: {1: 1}, 1: {2: 2}, 2: {}})


class OnTheTargetAlone(Rows):
    """Broken twin: the draft is not constrained. The text is the same, but less is accepted."""

    def _within(self, node: int, row: FloatArray) -> FloatArray:
        return row if self._purpose is Purpose.DRAFT else super()._within(node, row)


class OnTheDraftAlone(Rows):
    """Broken twin: the target is not constrained."""

    def _within(self, node: int, row: FloatArray) -> FloatArray:
        return row if self._purpose is Purpose.TARGET else super()._within(node, row)

    def permits(self, node: int, token: int) -> bool:
        return self._purpose is Purpose.TARGET or super().permits(node, token)


class OfTheParent(Rows):
    """Broken twin: a node is constrained as its parent is."""

    def _path(self, node: int) -> list[int]:
        return super()._path(max(0, self._tree.parents[node]))


def swapped(kind: type[Rows]) -> Twin:
    def twin(sampler: Sampler) -> None:
        def rows(scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
            return kind(sampler, scored, tree, purpose)

        sampler.rows = rows  # type: ignore[method-assign]
        constraint = sampler.constraint
        assert isinstance(constraint, TableConstraint)
        constraint.push = lambda tokens: None  # type: ignore[method-assign]
        constraint.forced = lambda path, most: []  # type: ignore[method-assign]
        history = sampler.history

        def after(path: Sequence[int]) -> int | None:
            state: int | None = 0
            for token in [*history[len(PROMPT) :], *path]:
                state = None if state is None else TABLE.get(state, {}).get(token)
            return state

        constraint._after = after  # type: ignore[method-assign]

    return twin


def test_an_honest_twin_is_not_caught() -> None:
    same_everywhere(lambda: engine("model"), twin=swapped(Rows))


@pytest.mark.parametrize("broken", [OnTheDraftAlone, OfTheParent])
def test_the_comparison_catches(broken: type[Rows]) -> None:
    with pytest.raises((AssertionError, InputError)):
        same_everywhere(lambda: engine("model"), twin=swapped(broken))


def test_a_draft_that_is_constrained_is_accepted_more_often() -> None:
    """The text does not say whether the draft is constrained; its acceptance does."""
    within = same_everywhere(lambda: engine("model"), twin=swapped(Rows))
    outside = same_everywhere(lambda: engine("model"), twin=swapped(OnTheTargetAlone))
    rates = [one.accepted_tokens / one.drafted_tokens for one in (outside, within)]
    assert rates[0] + 0.1 < rates[1]


def test_probabilities_are_those_of_the_allowed_tokens_renormalised() -> None:
    params = SamplingParams(temperature=0.7, seed=1)
    constraint = TableConstraint(TABLE, VOCAB)
    sampler = Sampler(params, VOCAB, PROMPT, constraint=constraint)
    tree = TokenTree.chain([PROMPT[-1], 0])
    session = TARGET.open(64)
    session.prefill(PROMPT[:-1])
    rows = sampler.rows(session.forward(tree), tree, Purpose.TARGET)
    mask: BoolArray | None = constraint.allowed([0])
    assert mask is not None
    weights = np.where(mask, np.exp(TARGET.logits([*PROMPT, 0]) / 0.7), 0)
    np.testing.assert_allclose(rows.probs(1), weights / weights.sum(), rtol=1e-5)
    assert rows.probs(0).tolist() == [1.0, *[0.0] * (VOCAB - 1)]
