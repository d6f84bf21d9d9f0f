"""A draft that never drafts some tokens, as with a trimmed head: the distribution of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.certificate import enumerable
from benchmarks.certificate.enumerable import SUSPICIOUS, Setting, expected, observed, p_value
from edgedec.decoding.acceptance import GumbelCoupling, SpeculativeSampling, Verdict
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft, FloatArray

pytestmark = pytest.mark.statistical
LEFT_OUT = (0, 3)


class Trimmed(enumerable.EnumerableModel):
    def logits(self, tokens: Sequence[int]) -> FloatArray:
        row = super().logits(tokens).copy()
        row[list(LEFT_OUT)] = -np.inf
        return row


class JudgesByTheWholeDraft(SpeculativeSampling):
    """Takes the probabilities that the draft would have with all of its tokens."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        for node, q in draft.q.items():
            whole = q.copy()
            whole[list(LEFT_OUT)] = 0.25
            draft.q[node] = whole / whole.sum()
        return super().accept(draft, rows, streams)


@pytest.fixture(autouse=True)
def trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Trimmed(seed=2, like=(enumerable.TARGET, 0.3))
    monkeypatch.setattr(enumerable, "DRAFT", draft)


@pytest.mark.parametrize("rule", [SpeculativeSampling, GumbelCoupling])
def test_the_distribution_is_the_targets(rule: type) -> None:
    setting = Setting(rule())
    counts, metrics = observed(setting)
    assert p_value(counts, expected(setting)) > SUSPICIOUS
    assert 0.1 < metrics.acceptance_rate < 0.9


def test_a_twin_that_judges_by_the_whole_draft_is_caught() -> None:
    setting = Setting(JudgesByTheWholeDraft())
    counts, _ = observed(setting)
    assert p_value(counts, expected(setting)) < SUSPICIOUS
