"""Traces replay what drafting really does: held against the engine with a real draft model."""

import numpy as np
import pytest
from cross_vocabulary import permutation

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.drafting._translated import TranslatedSession
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import NoText, StopRule
from edgedec.profiling import traces
from edgedec.records.trace import Choices, Trace

VOCAB, LENGTH, TOKENS = 48, 3, 90


def models():
    from edgedec.testing import FakeModel

    target = FakeModel(VOCAB, seed=1, context=4, sharpness=2.5)
    return target, FakeModel(VOCAB, seed=2, context=4, like=(target, 0.8))


def recorder(draft_session=None) -> traces.TraceRecorder:
    target, draft = models()
    return traces.TraceRecorder(target.open(400), draft_session or draft.open(400), VOCAB, ())


def recorded(temperature: float, draft_session=None) -> Trace:
    return recorder(draft_session).record("text", [5, 6, 7], temperature, TOKENS)


def really_accepted(temperature: float) -> list[int]:
    """How many drafted tokens each round of real speculative decoding accepted."""
    target, draft = models()
    drafter = drafting.create("model", DrafterParts(VOCAB, draft.open(400)))
    engine = Engine(target.open(400), drafter, Fixed(LENGTH), GumbelCoupling())
    params = SamplingParams(temperature=temperature, seed=traces._SEED)
    stop = StopRule(max_new_tokens=TOKENS, stream=NoText())
    request = Request([5, 6, 7], Sampler(params, VOCAB, [5, 6, 7]), stop)
    rounds = engine.run(request, Metrics())
    return [len(emissions) for emissions in rounds]


def replayed(text: tuple[int, ...], draft: Choices) -> list[int]:
    """The same from a trace."""
    found, at = [], 0
    while at < len(text):
        accepted = 0
        limit = min(LENGTH, len(text) - at - 1)
        while accepted < limit and draft.ids[at + accepted][0] == text[at + accepted]:
            accepted += 1
        found.append(accepted + 1)
        at += accepted + 1
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.3])
def test_a_trace_replays_the_rounds_of_real_decoding(temperature: float) -> None:
    trace = recorded(temperature)
    assert trace.draft is not None
    text = trace.tokens[trace.prompt :]
    assert len(text) == TOKENS
    assert [row[0] for row in trace.target.ids] == list(text)
    rounds = replayed(text, trace.draft)
    assert rounds == really_accepted(temperature)
    assert max(rounds) > 1
    # Twins that the comparison must tell: noise of its own, and a row late.
    late = Choices(trace.draft.ids[1:] + trace.draft.ids[:1], trace.draft.probabilities)
    assert replayed(text, late) != rounds
    if temperature:
        params = SamplingParams(temperature=temperature, seed=1)
        own = recorder()
        other = own.choices(own.draft, [5, 6, 7], text, params, Purpose.DRAFT)
        assert replayed(text, other) != rounds


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_choices_are_as_many_and_their_chances_are_the_models_own(temperature: float) -> None:
    trace = recorded(temperature)
    target, _ = models()
    for choices in (trace.target, trace.draft):
        assert choices is not None
        assert {len(row) for row in choices.ids} == {traces.CHOICES}
        assert {len(set(row)) for row in choices.ids} == {traces.CHOICES}
    for i in range(TOKENS):
        row = target.logits(trace.tokens[: trace.prompt + i]).astype(np.float64)
        weights = np.exp(row / (temperature or 1))
        expected = (weights / weights.sum())[list(trace.target.ids[i])]
        np.testing.assert_allclose(trace.target.probabilities[i], expected, atol=1e-5)
        if not temperature:
            assert list(expected) == sorted(expected, reverse=True)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_of_another_vocabulary_says_the_same_in_the_targets_tokens(
    temperature: float,
) -> None:
    translation = permutation(VOCAB)
    _, draft = models()

    class Permuted(type(draft)):
        """The same draft with other ids."""

        def logits(self, tokens):
            back = translation.to_target
            own = super().logits([int(back[token]) for token in tokens])
            renamed = np.empty_like(own)
            renamed[translation.to_draft] = own
            return renamed

    target, _ = models()
    permuted = Permuted(VOCAB, seed=2, context=4, like=(target, 0.8))
    there = recorded(temperature, TranslatedSession(permuted.open(400), translation))
    here = recorded(temperature)
    assert there.draft is not None
    assert here.draft is not None
    assert there.draft.ids == here.draft.ids
    wrong = recorded(temperature, permuted.open(400))
    assert wrong.draft is not None
    assert wrong.draft.ids != here.draft.ids


def test_a_text_ends_at_its_end() -> None:
    target, draft = models()
    eos = recorded(0.0).tokens[3 + 20]
    own = traces.TraceRecorder(target.open(400), draft.open(400), VOCAB, (eos,))
    trace = own.record("text", [5, 6, 7], 0.0, TOKENS)
    text = trace.tokens[trace.prompt :]
    assert text[-1] == eos
    assert len(text) <= 21
    assert trace.draft is not None
    assert len(trace.draft.ids) == len(trace.target.ids) == len(text)


def test_without_a_draft_model_there_are_no_choices_of_one() -> None:
    target, _ = models()
    trace = traces.TraceRecorder(target.open(400), None, VOCAB, ()).record("text", [5], 0.0, 5)
    assert trace.draft is None
    assert trace.prompt == 1
