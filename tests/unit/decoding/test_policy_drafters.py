"""The measured-cost policy with every drafter: real drafts, simulated time."""

from __future__ import annotations

import pytest
from drafting_table import Table
from kinds import in_full
from policy_world import CURVE

from edgedec.decoding.policy import DraftPolicy, Fixed, MeasuredCost, RoundRecord
from edgedec.decoding.policy.drafter_estimate import Bin, DrafterEstimate
from edgedec.decoding.sampling import SamplingParams

DRAFT_S = 0.8e-3
DRAFTER_S = 10e-6


GREEDY = SamplingParams()
WILD = SamplingParams(temperature=1.1, seed=5)
WARM = SamplingParams(temperature=0.6, seed=2)
# How many tokens the next one depends on: with few of them a text repeats itself, which is
# what lookup and recycling live on.
CASES = [
    ("model", GREEDY, None),
    ("tree", GREEDY, None),
    ("recycle", WARM, 1),
    ("parallel", WILD, 3),
    *((name, WILD, 3) for name in ("model", "tree", "hybrid")),
    *((name, WARM, 1) for name in ("lookup", "hybrid")),
    ("hybrid", GREEDY, None),
]


def speed(
    name: str, policy: DraftPolicy, params: SamplingParams, context: int | None, tokens: int = 300
) -> float:
    """Tokens a second, relative to plain decoding."""
    table = Table(name, params, context=context)
    begin, seconds = len(table.sampler.history), 0.0
    while len(table.sampler.history) < begin + tokens:
        passes, before = table.draft.passes, len(table.sampler.history)
        draft = table.propose(*_limits(policy), policy.go_on)
        draft_s = (table.draft.passes - passes) * DRAFT_S + DRAFTER_S
        accepted = table.settle(draft)
        emitted = len(table.sampler.history) - before
        path = table.path
        rows, target_s = len(draft.tree), CURVE.at(len(draft.tree))
        seconds += target_s + draft_s
        policy.observe(
            RoundRecord(
                drafted=draft.drafted,
                depth=max(draft.tree.depths),
                accepted=accepted,
                emitted=emitted,
                rows=rows,
                draft_s=draft_s,
                target_s=target_s,
                total_s=target_s + draft_s,
                source=draft.source,
                path=path,
                tokens=table.sampler.history[-emitted:],
            )
        )
    return (len(table.sampler.history) - begin) / seconds * CURVE.at(1)


def _limits(policy: DraftPolicy) -> tuple[int, int]:
    limits = policy.limits()
    return limits.nodes, limits.depth


@pytest.mark.parametrize(("name", "params", "context"), in_full(CASES, 3))
def test_every_drafter_comes_near_its_best_fixed_length(
    name: str, params: SamplingParams, context: int | None
) -> None:
    best = max(speed(name, Fixed(n), params, context) for n in (1, 2, 3, 5, 8))
    measured = speed(name, MeasuredCost(CURVE, DRAFT_S), params, context)
    # Learning included: 300 tokens are about 150 rounds.
    assert measured > 0.95 * max(best, 1.0)


@pytest.mark.parametrize(("name", "params", "context"), in_full(CASES[:3]))
def test_a_policy_that_learns_the_opposite_falls_behind(
    name: str, params: SamplingParams, context: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = DrafterEstimate.learn

    def opposite(self: DrafterEstimate, bin_: Bin, *, accepted: bool) -> None:
        learn(self, bin_, accepted=not accepted)

    monkeypatch.setattr(DrafterEstimate, "learn", opposite)
    with pytest.raises(AssertionError):
        test_every_drafter_comes_near_its_best_fixed_length(name, params, context)
