"""The estimated speed-up over plain decoding, held to costs that are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from overlapping import DRAFT, SAMPLINGS, TARGET, VOCAB, decode, request

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics, RoundTimes
from edgedec.decoding.policy import CostCurve, DraftPolicy, Fixed, MeasuredCost, RoundRecord
from edgedec.pipeline import Pipeline
from edgedec.testing import FakeModel, PacedModel
from tests.virtual_time import VirtualClock

CURVE = CostCurve((1, 2, 3, 4, 5, 6, 8, 16), (1, 1.05, 1.24, 1.32, 1.5, 1.63, 1.98, 3.31))
# Drafts nothing that the target would say.
STRANGER = FakeModel(VOCAB, seed=9, context=2, sharpness=3.0)


class Sometimes(Fixed):
    """Drafts in every other round only."""

    def __init__(self, draft_length: int) -> None:
        super().__init__(draft_length)
        self._round = 0

    def limits(self):
        self._round += 1
        return super().limits() if self._round % 2 else Fixed(0).limits()


def run(
    policy: DraftPolicy, drafter: str, *, draft: FakeModel = DRAFT, slower: float = 1
) -> Metrics:
    """A text in virtual time; the target's passes take ``slower`` times what CURVE says."""
    with VirtualClock() as clock:
        target = PacedModel(TARGET, lambda rows, context: slower * CURVE.at(rows), clock)
        paced = PacedModel(draft, lambda rows, context: 0.1, clock)
        drafts = drafting.create(drafter, DrafterParts(VOCAB, paced.open(600)))
        engine = Engine(target.open(400), drafts, policy, acceptance.rule(), clock.now)
        metrics = Metrics()
        decode(engine, request(SAMPLINGS["hot"], max_new_tokens=150), metrics)
        return metrics


def real(metrics: Metrics, *, slower: float = 1) -> float:
    """The speed-up that plain decoding at CURVE's first width gives."""
    return slower * CURVE.at(1) / metrics.tpot_s


@pytest.mark.parametrize("slower", [1, 3])
@pytest.mark.parametrize("draft", [DRAFT, STRANGER], ids=["good", "unpredictable"])
def test_the_estimate_is_the_real_ratio_where_the_policy_measures(
    draft: FakeModel, slower: float
) -> None:
    metrics = run(MeasuredCost(CURVE, 0.1), "model", draft=draft, slower=slower)
    assert metrics.speedup_estimate == pytest.approx(real(metrics, slower=slower), rel=0.08)


@pytest.mark.parametrize(
    ("policy", "draft", "least", "most"),
    [
        (lambda: Sometimes(3), DRAFT, 1.05, 9),  # lone rounds of the text itself are enough
        (lambda: Sometimes(6), STRANGER, 0, 0.9),  # a useless draft is slower than plain
        # A fixed length, from the lone row measured at opening.
        (lambda: Fixed(3, lone_row_s=CURVE.at(1)), DRAFT, 0, 9),
    ],
)
def test_the_estimate_is_the_real_ratio(
    policy: Callable[[], DraftPolicy], draft: FakeModel, least: float, most: float
) -> None:
    metrics = run(policy(), "model", draft=draft)
    assert least <= real(metrics) < most
    assert metrics.speedup_estimate == pytest.approx(real(metrics), rel=0.02)


def test_a_pipeline_measures_a_lone_row_for_a_fixed_length() -> None:
    with Pipeline.open("demo", plan="none", draft_length=3) as pipeline:
        assert (pipeline.engine.policy.lone_row_s or 0) > 0
    with Pipeline.open("demo", plan="none", drafter="none") as pipeline:
        assert pipeline.engine.policy.lone_row_s is None


def test_without_a_lone_row_there_is_no_estimate() -> None:
    assert run(Fixed(3), "model").speedup_estimate is None
    assert Metrics().speedup_estimate is None


def test_plain_decoding_is_estimated_as_itself() -> None:
    assert run(Fixed(0), "none").speedup_estimate == pytest.approx(1.0)


def test_a_draft_that_computes_meanwhile_leaves_no_estimate() -> None:
    metrics = run(Sometimes(3), "model")
    metrics.ahead_s = 0.1
    assert metrics.speedup_estimate is None


def test_a_machine_that_is_too_busy_leaves_no_estimate() -> None:
    metrics = run(Sometimes(3), "model")
    metrics.waited_s = 0.2 * (metrics.ttft_s + metrics.decode_s)
    assert metrics.speedup_estimate is not None
    metrics.waited_s = 0.5 * (metrics.ttft_s + metrics.decode_s)
    assert metrics.speedup_estimate is None


def test_more_than_the_tokens_of_a_round_is_no_estimate() -> None:
    """A calibration that other work disturbed made a lone row look 20 times as dear."""
    disturbed = CostCurve((1, 16), (20.0, 20.0))
    times = run(MeasuredCost(disturbed, 0.1), "model")
    times.round_times._known, times.round_times._alone = [20.0], []
    times.round_times._after_wide = []
    assert times.round_times.speedup > 5
    assert times.speedup_estimate is None


def one(rows: int, emitted: int, seconds: float) -> RoundRecord:
    return RoundRecord(rows - 1, rows - 1, emitted - 1, emitted, rows, 0.0, seconds, seconds, "m")


def test_one_long_pause_counts_for_neither_side() -> None:
    calm, disturbed = RoundTimes(), RoundTimes()
    for place in range(40):
        record = one(1, 1, 1.0) if place % 2 else one(4, 3, 1.5)
        calm.observe(record, record.total_s, None)
        disturbed.observe(record, 50.0 if place == 20 else record.total_s, None)
    assert calm.speedup == pytest.approx(disturbed.speedup)


def test_a_lone_row_is_a_pass_and_a_plain_round_takes_more() -> None:
    """Rounds of a pass of 1.4 s, a draft of 0.3 s and 0.5 s outside of the models."""
    times = RoundTimes()
    for _ in range(9):
        record = RoundRecord(3, 3, 2, 3, 4, 0.3, 1.4, 2.2, "m")
        times.observe(record, record.total_s, 1.0)
    assert times.speedup == pytest.approx(3 * (1.0 + 0.5) / 2.2)


class FirstRoundToo(RoundTimes):
    """Broken twin: the first round, whose tokens came with the prompt, counts."""

    def __init__(self) -> None:
        super().__init__()
        self._first = False


def test_the_first_round_is_left_out() -> None:
    found = {}
    for kind in (RoundTimes, FirstRoundToo):
        times = kind()
        times.observe(one(5, 5, 99.0), 99.0, None)
        for _ in range(10):
            times.observe(one(1, 1, 1.0), 1.0, None)
        found[kind] = times.speedup
    assert found[RoundTimes] == pytest.approx(1.0)
    assert found[FirstRoundToo] < 0.2
