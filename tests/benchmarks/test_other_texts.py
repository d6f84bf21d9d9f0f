"""How often a text that a plan was not made on lies in its interval, on texts that are made up."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from benchmarks.sections import other_texts
from benchmarks.sections.other_texts import CODE, HOPELESS, PROSE
from edgedec.records.plan import Plan, Prediction
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload
from tests.profiles import WORK, draft, profile, target
from tests.simulated import trace


def by_share(profile: Profile, plan: Plan, workload: Workload) -> Prediction:
    """As fast as the draft is right, where it drafts: a replay would take a minute."""
    rates = []
    for text in profile.traces:
        assert text.draft is not None
        written = text.tokens[text.prompt :]
        share = fmean(ids[0] == token for ids, token in zip(text.draft.ids, written, strict=True))
        rates.append(100.0 * (1 + 2 * share**3) if plan.drafter == "model" else 100.0)
    return Prediction(1 / fmean(1 / rate for rate in rates), 0.1, 1, 1.0, tuple(rates))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_texts, "predict", by_share)


@pytest.fixture(scope="module")
def recorded() -> Profile:
    """Texts of code that a draft gets right more or less often; prose that it seldom does."""
    rng = np.random.default_rng(3)
    chances = np.clip(rng.normal(0.75, 0.15, 12), 0.05, 0.98)
    texts = [
        replace(trace(float(chance), seed=seed), name=f"{CODE} {seed}")
        for seed, chance in enumerate(chances)
    ]
    for kind, chance in ((PROSE, 0.7), (HOPELESS, 0.0)):
        texts += [
            replace(trace(chance, seed=seed), name=f"{kind} {seed}") for seed in range(20, 24)
        ]
    return profile(target(), draft(), texts=texts)


def test_other_texts_lie_in_the_interval_and_a_narrow_one_loses_them(recorded: Profile) -> None:
    found = dict(other_texts._replayed(recorded, WORK))
    names = list(found)
    assert names[0] == "code, from the plan of the 11 others"
    left_out = found[names[0]]
    assert len(left_out) == 12
    inside = fmean(one.inside for one in left_out)
    assert inside >= 0.75
    # The broken twin: what was printed before texts counted.
    assert fmean(one.near for one in left_out) < inside - 0.2
    assert fmean(one.inside for one in found[names[1]]) >= 0.7
    assert len(found[names[2]]) == len(found[names[3]]) == 4


def test_a_text_is_held_against_a_plan_that_never_saw_it(recorded, monkeypatch) -> None:
    seen, decide = [], other_texts._decide

    def watched(profile, names, workload):
        seen.append(set(names))
        return decide(profile, names, workload)

    monkeypatch.setattr(other_texts, "_decide", watched)
    next(other_texts._replayed(recorded, WORK))
    every = {f"{CODE} {number}" for number in range(12)}
    assert [every - names for names in seen] == [{f"{CODE} {number}"} for number in range(12)]
