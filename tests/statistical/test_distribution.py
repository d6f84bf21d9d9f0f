"""The joint distribution of whole texts, for every rule and beside it for its broken twins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.certificate.distribution import FLAGGED, HONEST
from benchmarks.certificate.enumerable import (
    HORIZON,
    PROMPT,
    RUNS,
    SUSPICIOUS,
    TARGET,
    VOCAB,
    Setting,
    expected,
    observed,
    p_value,
)
from edgedec.decoding.acceptance import (
    BigLittle,
    GumbelCoupling,
    Residual,
    SpeculativeSampling,
    Verdict,
)
from edgedec.decoding.drafting.base import (
    Drafter,
    DraftLimits,
    GoOn,
    RoundFeedback,
)
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.tree import Draft, FloatArray, TokenTree

pytestmark = pytest.mark.statistical


# An earlier text with the same beginning, which suffix drafts from.
BEFORE = [*PROMPT, 1, 3, 2, 0, 3, 0, 1, 3, 1, 0, 2, 2]
EARLIER = {
    f"{rule.name}, suffix": Setting(rule, "suffix", earlier=BEFORE)
    for rule in (GumbelCoupling(), SpeculativeSampling())
}
RIGHT = {**HONEST, **EARLIER}


@pytest.mark.parametrize("name", RIGHT)
def test_the_target_s_own(name: str) -> None:
    setting = RIGHT[name]
    counts, metrics = observed(setting)
    assert p_value(counts, expected(setting)) > SUSPICIOUS
    if setting.drafter != "none":
        assert 0.1 < metrics.acceptance_rate < 0.9, "a draft that is never or always right"
        assert metrics.drafted_tokens > counts.sum()


class ForgetsTheTemperature(SpeculativeSampling):
    """Draws the bonus token from the model's own distribution."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        verdict = super().accept(draft, rows, streams)
        last = verdict.path[-1]
        if draft.tree.children(last):
            return verdict
        raw = np.exp([rows.logprob(last, token) for token in range(VOCAB)]).astype(np.float32)
        uniform = streams.uniform(rows.position(last), Purpose.RECOVER)
        return Verdict(verdict.path, Residual(raw, None).draw(uniform))


class TakesADeterministicDraftForASample(SpeculativeSampling):
    """Judges copied tokens as if they had been drawn from a uniform q."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        flat = np.full(VOCAB, 1 / VOCAB, dtype=np.float32)
        draft.q = dict.fromkeys(range(len(draft.tree)), flat)
        return super().accept(draft, rows, streams)


class TrustsTheCoupledDraft(SpeculativeSampling):
    """Speculative sampling whose draft has the noise that the bonus token is drawn with."""

    coupled = True


class Wrapped:
    """A drafter around another."""

    def __init__(self, inner: Drafter) -> None:
        self.inner, self.name = inner, inner.name

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self.inner.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        return self.inner.propose(root, limits, go_on, streams)

    def observe(self, feedback: RoundFeedback) -> None:
        self.inner.observe(feedback)

    def close(self) -> None:
        self.inner.close()


class DropsUnsureTokens(Wrapped):
    """Decides after the draw: a token whose own q is small is dropped, with all below it."""

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        draft = super().propose(root, limits, go_on, streams)
        kept = 1
        while kept < len(draft.tree) and draft.q[kept - 1][draft.tree.tokens[kept]] > 0.3:
            kept += 1
        draft.tree = TokenTree.chain(draft.tree.tokens[:kept])
        return draft


class SwapsQ(Wrapped):
    """Reports the distribution of the next node instead of the one it drew from."""

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        draft = super().propose(root, limits, go_on, streams)
        rows: list[FloatArray] = [draft.q[node] for node in range(len(draft.q))]
        draft.q = dict(enumerate(rows[1:] + rows[:1]))
        return draft


TWINS = {
    **FLAGGED,
    "bonus without temperature": Setting(ForgetsTheTemperature(), policy=lambda: Fixed(1)),
    "lookup taken for a sample": Setting(TakesADeterministicDraftForASample(), "lookup"),
    "suffix taken for a sample": Setting(
        TakesADeterministicDraftForASample(), "suffix", earlier=BEFORE
    ),
    "drops a drawn token for its q": Setting(SpeculativeSampling(), wrap=DropsUnsureTokens),
    "q of another node": Setting(SpeculativeSampling(), wrap=SwapsQ),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_flagged(name: str) -> None:
    setting = TWINS[name]
    counts, _ = observed(setting)
    assert p_value(counts, expected(setting)) < SUSPICIOUS


def test_the_lossy_rules_say_so() -> None:
    for name, setting in {**HONEST, **TWINS}.items():
        if name in HONEST:
            assert setting.rule.lossless
    assert not BigLittle.lossless


def test_the_toy_is_worth_testing() -> None:
    chances = expected(HONEST["plain"])
    assert chances.sum() == pytest.approx(1)
    assert (chances * RUNS >= 5).sum() > 60
    assert len(PROMPT) > HORIZON
    assert TARGET.logits(PROMPT).std() > 0.5
