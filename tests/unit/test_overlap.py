"""Overlapped drafting: the sequential engine's text, whatever thinks when."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.engine import Emission, Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import CostCurve, DraftPolicy, Fixed, MeasuredCost
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import TokenTree
from edgedec.placement.ahead import Ahead
from edgedec.placement.clock import WallClock
from edgedec.placement.overlap import AheadDrafter, OverlappedEngine
from edgedec.testing import FakeModel, FakeSession

VOCAB = 16
PROMPT = [3, 1, 4, 1, 5]
TARGET = FakeModel(VOCAB, seed=0, context=3, sharpness=3.0)
DRAFT = FakeModel(VOCAB, seed=1, context=3, sharpness=3.0, like=(TARGET, 0.8))
SAMPLINGS = {
    "greedy": SamplingParams(),
    "hot": SamplingParams(temperature=1.3, seed=5),
    "filtered": SamplingParams(temperature=0.9, top_k=9, top_p=0.95, min_p=0.02, seed=6),
    "penalised": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        logit_bias={2: 1.5, 7: -100.0},
        seed=7,
    ),
    "greedy penalised": SamplingParams(repetition_penalty=1.4, frequency_penalty=0.5),
}


class Slow(FakeModel):
    """Passes take a random time, up to ``most`` seconds."""

    def __init__(self, inner: FakeModel, most: float, seed: int = 0) -> None:
        self.__dict__.update(inner.__dict__)
        self.random, self.most = random.Random(seed), most

    def open(self, capacity: int) -> FakeSession:
        return SlowSession(self, capacity)


class SlowSession(FakeSession):
    _model: Slow

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        scored = super().forward(tree, start, want)
        CLOCK.sleep(self._model.random.random() * self._model.most)
        return scored


CLOCK = WallClock()


class Harness:
    """An overlapped engine over fake models; ends its thread."""

    def __init__(
        self,
        policy: DraftPolicy | None = None,
        *,
        lookup: bool = False,
        target: FakeModel = TARGET,
        draft: FakeModel = DRAFT,
        branching: bool = True,
        capacity: int = 400,
        **more: Any,
    ) -> None:
        self.draft = draft.open(600)
        self.ahead = Ahead(DrafterParts(VOCAB, self.draft), CLOCK, branching=branching)
        asked = LookupDrafter(VOCAB, rivals=("model",)) if lookup else None
        self.drafter = AheadDrafter(self.ahead, CLOCK, lookup=asked, **more)
        self.target = target.open(capacity)
        rule = acceptance.rule("coupling")
        self.engine = OverlappedEngine(self.target, self.drafter, policy or Fixed(4), rule, CLOCK)

    def request(self, sampling: SamplingParams, prompt: Sequence[int], **stop: Any) -> Request:
        rules = {"eos_ids": (), "max_new_tokens": 60, **stop}
        return Request(prompt, Sampler(sampling, VOCAB, prompt), StopRule(**rules), logprobs=3)

    def run(
        self, sampling: SamplingParams, prompt: Sequence[int] = PROMPT, **stop: Any
    ) -> tuple[list[Emission], str | None, Metrics]:
        request, metrics = self.request(sampling, prompt, **stop), Metrics()
        events = [event for block in self.engine.run(request, metrics) for event in block]
        return sourceless(events), request.stop.reason, metrics

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()


def sourceless(events: list[Emission]) -> list[Emission]:
    """Who proposed a token is the one thing that may differ."""
    return [replace(event, source="") for event in events]


def plain(sampling: SamplingParams, prompt: Sequence[int] = PROMPT, **stop: Any) -> list[Emission]:
    rules = {"eos_ids": (), "max_new_tokens": 60, **stop}
    engine = Engine(
        TARGET.open(400),
        drafting.create("none", vocab_size=VOCAB),
        Fixed(0),
        acceptance.rule("coupling"),
    )
    request = Request(prompt, Sampler(sampling, VOCAB, prompt), StopRule(**rules), logprobs=3)
    return sourceless([event for block in engine.run(request, Metrics()) for event in block])


POLICIES: dict[str, Callable[[], DraftPolicy]] = {
    "fixed": lambda: Fixed(4),
    "measured": lambda: MeasuredCost(CostCurve((1, 4), (1e-3, 1.2e-3))),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("lookup", [False, True])
def test_the_text_is_that_of_plain_decoding(sampling: SamplingParams, lookup: bool) -> None:
    expected = plain(sampling)
    drafted = accepted = hits = 0
    for turn, policy in enumerate(POLICIES.values()):
        for branching in (True, False):
            for target_s, draft_s in ((1e-3, 3e-4), (3e-4, 1e-3)):
                target, draft = Slow(TARGET, target_s, turn), Slow(DRAFT, draft_s, turn)
                with Harness(
                    policy(), lookup=lookup, target=target, draft=draft, branching=branching
                ) as harness:
                    events, reason, metrics = harness.run(sampling)
                    assert harness.ahead.failure is None
                assert events == expected
                assert reason == "length"
                drafted += metrics.drafted_tokens
                accepted += metrics.accepted_tokens
                hits += metrics.reuse_hits
    assert 0 < accepted < drafted
    assert hits
