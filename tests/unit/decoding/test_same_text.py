"""The matrix: with speculation the same tokens, text, logprobs and reason as without.

Samplers x penalties x bias x ends x logprobs x drafters; the model is a hash of all it sees, so one
wrong token changes every number after it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from kinds import each_once, in_full

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.sampling.state import Penalties
from edgedec.decoding.session import Pass
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.testing import FakeModel, decoding
from edgedec.testing.decoding import Outcome

VOCAB = 12
EOS = 11
PROMPT = [1, 2, 3, 4, 1, 2, 3]
TARGET = FakeModel(VOCAB, seed=1, context=3, sharpness=1.5)
DRAFT = FakeModel(VOCAB, seed=2, context=3, like=(TARGET, 0.8), sharpness=1.5)
DRAFTERS = ["model", "parallel", "tree", "lookup", "recycle", "hybrid", "adaptive"]

SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.9, "seed": 7},
    "top-p": {"temperature": 1.2, "top_p": 0.8, "seed": 8},
    "top-k, min-p": {"temperature": 1.5, "top_k": 5, "min_p": 0.05, "seed": 10},
}
PENALTIES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.4},
    {"presence_penalty": 0.7, "frequency_penalty": 0.5},
]
BIASES: list[dict[int, float]] = [{}, {5: 1.5, 6: -3.0}]


@dataclass(frozen=True)
class End:
    """How a text may end."""

    eos_ids: tuple[int, ...] = ()
    stops: tuple[str, ...] = ()
    max_new_tokens: int = 30


MASKS = {"parallel": 3}

# None at all, each token's own, and the three best beside it.
LOGPROBS = (None, 0, 3)
ENDS = [End(), End(eos_ids=(EOS,)), End(stops=("ac", "dbb", "fee")), End(max_new_tokens=7)]


Twin = Callable[[Sampler], None]


def decode(
    drafter: str,
    params: SamplingParams,
    end: End,
    *,
    logprobs: int | None = 3,
    rule: str = "coupling",
    twin: Twin | None = None,
    stop: type[StopRule] = StopRule,
) -> tuple[Outcome, Metrics]:
    """Everything a reader sees, which must not depend on the drafter, and the figures."""
    chosen = acceptance.rule(rule)
    # A draft that was not trained to read masks: any token will do to test the text.
    built = drafting.create(drafter, DrafterParts(VOCAB, DRAFT.open(256), mask=MASKS.get(drafter)))
    engine = Engine(TARGET.open(256), built, Fixed(5, depth=3), chosen)
    sampler = Sampler(params, VOCAB, PROMPT, coupled=chosen.coupled)
    if twin is not None:
        twin(sampler)
    ending = stop(
        eos_ids=end.eos_ids,
        max_new_tokens=end.max_new_tokens,
        stop_strings=end.stops,
        stream=decoding.Letters(),
    )
    metrics = Metrics()
    request = Request(PROMPT, sampler, ending, logprobs=logprobs)
    return decoding.decode(engine, request, metrics), metrics


@functools.cache
def settings(sampler: str, logprobs: int | None = 3) -> list[tuple[SamplingParams, End, Outcome]]:
    """All settings of a sampler with what plain decoding makes of them."""
    found = []
    for penalties, bias, end in itertools.product(PENALTIES, BIASES, ENDS):
        params = SamplingParams(**SAMPLERS[sampler], **penalties, logit_bias=bias)
        found.append((params, end, decode("none", params, end, logprobs=logprobs)[0]))
    return found


@pytest.mark.parametrize(
    ("drafter", "how"), each_once(DRAFTERS, itertools.product(SAMPLERS, LOGPROBS))
)
def test_the_same_with_and_without_speculation(drafter: str, how: tuple[str, int | None]) -> None:
    accepted = drafted = 0
    for params, end, plain in settings(*how):
        speculative, metrics = decode(drafter, params, end, logprobs=how[1])
        assert speculative == plain
        accepted += metrics.accepted_tokens
        drafted += metrics.drafted_tokens
    assert 0 < accepted < drafted, "a matrix in which drafts are never or always right"


@pytest.mark.parametrize("sampler", in_full(["temperature", "top-k, min-p"]))
@pytest.mark.parametrize("drafter", ["model", "tree"])
def test_the_same_for_a_draft_with_noise_of_its_own(drafter: str, sampler: str) -> None:
    for params, end, plain in settings(sampler):
        assert decode(drafter, params, end, rule="match")[0] == plain


@pytest.mark.parametrize("rule", acceptance.RULES)
def test_a_rule_says_whether_it_keeps_a_seeds_text(rule: str) -> None:
    same = [decode("model", params, end, rule=rule)[0] == plain
            for params, end, plain in settings("temperature")]  # fmt: skip
    assert all(same) is acceptance.rule(rule).seeds_text


def test_a_rule_that_promises_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance.SpeculativeSampling, "seeds_text", True)
    with pytest.raises(AssertionError):
        test_a_rule_says_whether_it_keeps_a_seeds_text("speculative")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_logprobs_change_nothing_but_themselves(sampler: str) -> None:
    kinds = zip(*(settings(sampler, logprobs) for logprobs in LOGPROBS), strict=True)
    for (_, _, none), (_, _, own), (_, _, best) in kinds:
        assert none.text == own.text == best.text
        assert none.reason == own.reason == best.reason
        for nothing, alone, whole in zip(none.events, own.events, best.events, strict=True):
            assert (nothing.logprob, nothing.top_logprobs) == (None, None)
            assert alone == whole._replace(top_logprobs=[])
            assert nothing == alone._replace(logprob=None, top_logprobs=None)
            assert len(whole.top_logprobs or ()) == 3


def test_every_end_is_met() -> None:
    """Otherwise the matrix would say nothing of it."""
    reasons = {outcome.reason for name in SAMPLERS for _, _, outcome in settings(name)}
    assert reasons == {"eos", "stop", "length"}
    held = [
        outcome.events[-1].text for _, _, outcome in settings("greedy") if outcome.reason == "stop"
    ]
    assert held, "no greedy text ended by a stop string"


class PathBlind(Penalties):
    def applied(self, logits: FloatArray, path: Sequence[int]) -> FloatArray:
        return super().applied(logits, [])


def blind_to_the_path(sampler: Sampler) -> None:
    """Penalties know the text but not the path to a node."""
    if sampler.penalties is not None:
        sampler.penalties = PathBlind(sampler.params, PROMPT)


def swap_rows(sampler: Sampler, kind: type[Rows]) -> None:
    def rows(scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
        return kind(sampler, scored, tree, purpose)

    sampler.rows = rows  # type: ignore[method-assign]


def one_position_for_all(sampler: Sampler) -> None:
    """All nodes of a tree are drawn with the root's noise."""

    class Twin(Rows):
        def position(self, node: int) -> int:
            return super().position(0)

    swap_rows(sampler, Twin)


def logprobs_of_the_next_row(sampler: Sampler) -> None:
    """Off by one in a chain, where there is a next row."""

    class Twin(Rows):
        def logprob(self, node: int, token: int) -> float:
            return super().logprob(min(node + 1, len(self._tree) - 1), token)

    swap_rows(sampler, Twin)


def bias_at_the_root_only(sampler: Sampler) -> None:
    """Processors act on the first row of a pass only, as if there were no others."""
    honest = sampler.penalties

    class Twin(Rows):
        def _penalised(self, node: int) -> Any:
            sampler.penalties = honest if node == 0 else None
            return super()._penalised(node)

    swap_rows(sampler, Twin)


class LooksAtTheLastTokenOnly(StopRule):
    """A broken twin: an EOS inside an accepted run goes unnoticed."""

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], list[str]]:
        eos_ids, self._eos_ids = self._eos_ids, frozenset()
        kept, texts = super().cut(tokens[:-1])
        self._eos_ids = eos_ids
        more, last = super().cut(tokens[-1:])
        return kept + more, texts + last


@pytest.mark.parametrize(
    "twin",
    [blind_to_the_path, one_position_for_all, logprobs_of_the_next_row, bias_at_the_root_only],
)
def test_the_matrix_catches(twin: Twin) -> None:
    assert any(
        decode("model", params, end, twin=twin)[0] != plain
        for params, end, plain in settings("temperature")
    )


def test_the_matrix_catches_a_stop_rule_that_looks_at_the_last_token_only() -> None:
    assert any(
        decode("model", params, end, stop=LooksAtTheLastTokenOnly)[0] != plain
        for params, end, plain in settings("temperature")
    )
