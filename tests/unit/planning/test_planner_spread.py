"""Intervals for other texts: each text is predicted from the plan made of the others."""

import math
from dataclasses import replace

import numpy as np
import pytest

from edgedec.planning import spread
from edgedec.planning.choose import decide
from edgedec.planning.predict import predict
from edgedec.planning.spread import LEVEL, WeighedCandidate, between_texts, interval, student
from edgedec.records.plan import Candidate, Plan, Prediction
from tests.profiles import CPU, PAIR, WORK, draft, profile, said, target, times
from tests.simulated import trace

DRAFTING = Plan(CPU, None, "lookup", None)


def weighed(rates, plan: Plan = DRAFTING, measured: float = 0.0) -> WeighedCandidate:
    mean = len(rates) / sum(1 / rate for rate in rates) if len(rates) else 100.0
    prediction = Prediction(mean, 0.1, 1, 2.0, tuple(rates))
    return WeighedCandidate(Candidate(plan, prediction), 300, measured=measured)


@pytest.mark.parametrize("texts", [2, 4, 6, 16])
@pytest.mark.parametrize("deviation", [0.15, 0.25, 0.4])
def test_nine_in_ten_further_texts_lie_in_the_interval(texts, deviation):
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(600):
        rates = 100 * np.exp(deviation * rng.standard_normal(texts + 1))
        one = weighed(rates[:-1])
        low, high = interval(one, [one])
        hits.append(low <= rates[-1] <= high)
    # With few texts the usual spread counts as well, which is too narrow for 0.4 and too wide
    # for 0.15.
    assert LEVEL - 0.08 < np.mean(hits) <= 1.0
    if texts == 16:
        assert np.mean(hits) < 0.985


def test_the_narrow_twin_leaves_texts_out():
    """The standard error of the mean, as if a further text were one more measurement of it."""
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(600):
        rates = 100 * np.exp(0.25 * rng.standard_normal(17))
        one = weighed(rates[:-1])
        error = np.std(np.log(rates[:-1])) / 4
        hits.append(abs(math.log(rates[-1] / one.rate)) <= 1.645 * error)
    assert np.mean(hits) < 0.5


def test_what_the_choice_flatters_itself_by_is_counted():
    """Of many plans the one that a text favours by chance gives less on the next text."""
    rng = np.random.default_rng(2)
    rates = 100 * np.exp(0.3 * rng.standard_normal((40, 5)))
    many = [weighed(row) for row in rates]
    chosen = max(many, key=lambda one: one.rate)
    assert between_texts(chosen, many).shift < -0.1
    assert between_texts(chosen, [chosen]).shift > -0.1


def test_plain_decoding_takes_the_same_time_whatever_is_written():
    plain = weighed([100.0] * 4, Plan(CPU))
    low, high = interval(plain, [plain, weighed([90, 200, 400, 90])])
    assert 0.8 < low / 100 < 1 < high / 100 < 1.2
    wide = interval(weighed([100.0] * 4), [weighed([100.0] * 4)])
    assert wide[1] / wide[0] > 1.5 * high / low


def test_one_text_says_nothing_of_others_and_pass_times_are_part_of_it():
    one, many = weighed([100.0]), weighed([100.0] * 16)
    ratios = [high / low for low, high in (interval(w, [w]) for w in (one, many))]
    assert ratios[0] > 2 * ratios[1]
    unsure = replace(many, measured=0.3)
    low, high = interval(unsure, [unsure])
    assert high / low > 1.5 * ratios[1]


def test_students_quantiles_fall_to_the_normal_ones():
    found = [student(n) for n in range(1, 200)]
    assert found == sorted(found, reverse=True)
    assert student(30) == pytest.approx(1.697, abs=2e-3)
    assert student(10**6) == pytest.approx(1.645, abs=1e-3)


def uncertainty(decision) -> float:
    return float(said(decision, "uncertainty").split()[-1][:-2])


def test_texts_that_differ_make_a_plan_uncertain():
    alike = profile(target(), draft(), texts=[trace(0.8, seed=seed) for seed in range(6)])
    apart = profile(
        target(), draft(), texts=[trace(0.6 + 0.4 * (seed % 2), seed=seed) for seed in range(6)]
    )
    same, other = (decide(one, WORK, None, predict) for one in (alike, apart))
    assert uncertainty(other) > uncertainty(same) + 5
    (low, high), (lowest, highest) = same.interval, other.interval
    assert highest / lowest > 1.2 * high / low
    assert low < same.chosen.prediction.tokens_per_second < high
    assert len(same.chosen.prediction.texts) == 6
    said(same, "Nine in ten other texts", f"{low:.0f} to {high:.0f} tokens/s")


def test_it_says_which_texts_it_was_made_on():
    decision = decide(replace(PAIR, texts="4 texts of mine.jsonl"), WORK, None, predict)
    assert decision.texts == "4 texts of mine.jsonl"
    said(decision, "It was made on 4 texts of mine.jsonl; nine in ten other texts like them")


def uncertain(draft_spread: float, drafter: str) -> float:
    """Of the best plan of a drafter, by what was measured alone."""
    curve = {1: 4.0, 2: 4.1, 4: 4.3, 8: 4.7}
    models = target(), draft(times=times(curve, spread=draft_spread))

    def by_replay(profile, plan, workload):
        return Prediction(1000.0 if plan.drafter == drafter else 10.0, 0.1, 1, 2.0)

    decision = decide(profile(*models, right=0.95), WORK, None, by_replay)
    assert decision.chosen.plan.drafter == drafter
    return uncertainty(decision)


def test_the_drafts_spread_counts_where_a_model_drafts():
    calm, rough = (uncertain(spread_, "model") for spread_ in (0.0, 0.1))
    assert rough > calm + 1, "the share of a round that the draft takes, of its 10%"
    assert uncertain(0.0, "lookup") == uncertain(0.1, "lookup")


def test_by_formula_alone_an_interval_is_never_narrow():
    low, high = decide(PAIR, WORK).interval
    assert high / low > 2
    assert spread.REPLAY > 0
