"""Whatever a policy chooses, round by round and at random, the text is plain decoding's."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kinds import each_once

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.acceptance import AcceptanceRule, GumbelCoupling, Verdict
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, DraftStep
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, Fixed, RoundRecord
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows, SamplingParams
from edgedec.decoding.tree import Draft
from edgedec.testing import FakeModel
from edgedec.testing.decoding import decode, request

VOCAB = 12
PROMPT = [1, 2, 3, 4, 1, 2, 3]
TARGET = FakeModel(VOCAB, seed=1, context=2, sharpness=1.5)
DRAFT = FakeModel(VOCAB, seed=2, context=2, like=(TARGET, 0.8), sharpness=1.5)
SAMPLERS = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(temperature=0.9, seed=7),
    "top-p": SamplingParams(temperature=1.2, top_p=0.8, seed=8),
    "penalised": SamplingParams(temperature=0.8, repetition_penalty=1.3, seed=9),
}


class Chance:
    """Draws who may draft, how many tokens, how deep, and where to stop."""

    name = "chance"
    lone_row_s = slowdown = None

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._may: set[str] = set()

    def begin(self, remaining: int) -> None:
        pass

    def limits(self) -> DraftLimits:
        pick = self._random
        self._may = {name for name in drafting.names() if pick.random() < 0.5}
        return DraftLimits(pick.randrange(7), pick.randrange(1, 5))

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._random.random() < 0.5
        if self._random.random() < 0.3:
            step.offer.confidence()  # a look that nothing may come of
        return step.offer.source in self._may and self._random.random() < 0.8

    def observe(self, record: RoundRecord) -> None:
        pass


class Credulous(GumbelCoupling):
    """Takes the first drafted token for right: what was drafted leaks into the text."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        if draft.drafted:
            return Verdict([0, 1], rows.draw(1))
        return super().accept(draft, rows, streams)


def text(
    drafter: str,
    policy: DraftPolicy,
    params: SamplingParams,
    *,
    rule: AcceptanceRule | None = None,
    branching: bool = True,
) -> tuple[list[int], Metrics]:
    """Sixty tokens, and the figures."""
    draft = DRAFT.open(200)
    built = drafting.create(drafter, DrafterParts(VOCAB, draft, branches=None if branching else 1))
    engine = Engine(TARGET.open(200), built, policy, rule or acceptance.rule())
    metrics = Metrics()
    return decode(engine, request(params, VOCAB, PROMPT), metrics).tokens, metrics


@pytest.mark.parametrize(
    ("drafter", "sampler"), each_once(["adaptive", "text", "hybrid"], reversed(SAMPLERS))
)
def test_random_choices_never_show_in_the_text(drafter: str, sampler: str) -> None:
    params = SAMPLERS[sampler]
    plain, _ = text("none", Fixed(0), params)
    made: Counter[str] = Counter()
    accepted = 0
    for seed in range(12):
        branching = bool(seed % 2)
        found, metrics = text(drafter, Chance(seed), params, branching=branching)
        assert found == plain
        made += metrics.sources
        accepted += metrics.accepted_tokens
    # It was put to the test: several drafted, and some of it was right.
    assert accepted > 20
    arms = {"adaptive": {"lookup", "model", "tree", "recycle"}, "text": {"lookup", "recycle"}}
    assert set(made) == arms.get(drafter, {"lookup", "model"})


def test_a_rule_that_leaks_is_caught() -> None:
    params = SAMPLERS["temperature"]
    plain, _ = text("none", Fixed(0), params, rule=Credulous())
    assert plain == text("none", Fixed(0), params)[0]
    assert any(
        text("adaptive", Chance(seed), params, rule=Credulous())[0] != plain for seed in range(8)
    )
