"""An overlapped engine over fake models whose passes take random times."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, Fixed
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Model, Pass, Session, Want
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import TokenTree
from edgedec.hardware.clock import Clock, WallClock
from edgedec.loading.engine import build_engine
from edgedec.overlap.engine import LookaheadDrafter
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.testing import FakeModel, decoding
from edgedec.testing.decoding import Outcome, decode
from tests.virtual_time import VirtualClock

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


CLOCK = WallClock()


class Slow:
    """A model whose passes take a random time, up to ``most`` seconds."""

    def __init__(self, inner: Model, most: float, seed: int = 0, clock: Clock = CLOCK) -> None:
        self.info, self.capabilities, self._clock = inner.info, inner.capabilities, clock
        self._inner, self.random, self.most = inner, random.Random(seed), most

    def open(self, capacity: int) -> Session:
        session = self._inner.open(capacity)
        honest = session.forward

        def forward(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            scored = honest(tree, start, want)
            self._clock.sleep(self.random.random() * self.most)
            return scored

        session.forward = forward  # type: ignore[method-assign]
        return session

    def close(self) -> None:
        self._inner.close()


def request(sampling: SamplingParams, prompt: Sequence[int] = PROMPT, **stop: Any) -> Request:
    return decoding.request(sampling, VOCAB, prompt, logprobs=3, **stop)


def plain(
    sampling: SamplingParams,
    prompt: Sequence[int] = PROMPT,
    *,
    capacity: int = 400,
    **stop: Any,
) -> Outcome:
    """What the sequential engine writes without a draft."""
    none, rule = drafting.create("none", DrafterParts(VOCAB)), acceptance.rule()
    engine = Engine(TARGET.open(capacity), none, Fixed(0), rule)
    return decode(engine, request(sampling, prompt, **stop))


def overlapped_plan(drafter: str = "model", *, apart: bool = True) -> Plan:
    """Draft while verifying, on a device of its own or on the target's."""
    draft = Place("fake", "draft" if apart else "target")
    return Plan(Place("fake", "target"), draft, drafter, schedule=OVERLAPPED)


class Harness:
    """An overlapped engine over fake models; leaving it ends its thread."""

    def __init__(
        self,
        policy: DraftPolicy | None = None,
        *,
        lookup: bool = False,
        target: Model = TARGET,
        draft: Model = DRAFT,
        branches: int | None = None,
        capacity: int = 400,
        draft_capacity: int = 600,
        translation: Translation | None = None,
        apart: bool = True,
        clock: Clock = CLOCK,
        **more: Any,
    ) -> None:
        self.clock = clock
        self.draft = draft.open(draft_capacity)
        self.target = target.open(capacity)
        self.engine = build_engine(
            overlapped_plan("hybrid" if lookup else "model", apart=apart),
            self.target,
            DrafterParts(VOCAB, self.draft, translation=translation, draft_branches=branches),
            clock,
            policy=policy or Fixed(4),
            **more,
        )
        assert isinstance(self.engine.drafter, LookaheadDrafter)
        self.drafter, self.ahead = self.engine.drafter, self.engine.drafter.ahead

    def run(
        self, sampling: SamplingParams, prompt: Sequence[int] = PROMPT, **stop: Any
    ) -> tuple[Outcome, Metrics]:
        metrics = Metrics()
        return decode(self.engine, request(sampling, prompt, **stop), metrics), metrics

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *error: object) -> None:
        self.drafter.close()


@contextmanager
def in_virtual_time(
    target_s: float,
    target: FakeModel = TARGET,
    draft: FakeModel = DRAFT,
    *,
    draft_s: float | None = None,
    **more: Any,
) -> Iterator[Harness]:
    """The same draft passes whenever it runs; each takes up to an eighth of the target's."""
    draft_s = target_s / 8 if draft_s is None else draft_s
    with VirtualClock() as clock:
        slow = Slow(target, target_s, clock=clock), Slow(draft, draft_s, clock=clock)
        with Harness(target=slow[0], draft=slow[1], clock=clock, **more) as harness:
            yield harness
