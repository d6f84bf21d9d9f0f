"""A draft's thread rests where it takes more from the target than its drafts give."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import pytest
from scripted import Costs, Script, decode, script

from edgedec.overlap.contention import ContentionControl
from edgedec.records.plan import OVERLAPPED

LONE_S, ROW_S = 10e-3, 1e-3
# Tokens that a round with a draft emits, in turn: 1.5 in the mean.
TOKENS = (1, 2, 1, 2)


def rounds(control: ContentionControl, slowed: float) -> Iterator[bool]:
    """Decode without end; yield whether the draft rested."""
    while True:
        for tokens in TOKENS:
            resting = control.resting
            factor = 1.0 if resting else slowed
            seconds = LONE_S if resting else LONE_S + 3 * ROW_S
            control.observe(
                1 if resting else tokens,
                factor * seconds,
                factor * LONE_S,
                factor,
                by_model=not resting,
            )
            yield resting


def rested(slowed: float, count: int = 4000) -> float:
    """Return the share of rounds in which the draft rested."""
    decoding = rounds(ContentionControl(), slowed)
    return mean(next(decoding) for _ in range(count))


@pytest.mark.parametrize(("slowed", "rests"), [(1.0, False), (1.1, False), (1.2, True), (2, True)])
def test_it_rests_where_slower_passes_cost_more_than_its_drafts_give(slowed, rests):
    # A round of four rows takes 1.3 lone rows and gives 1.5 tokens: worth it up to 1.15 times.
    assert rested(slowed) == pytest.approx(1.0 if rests else 0.0, abs=0.05)


def test_trials_become_rare_and_notice_a_change():
    control = ContentionControl()
    calm, noisy = rounds(control, 1.0), rounds(control, 2.0)
    first = sum(next(calm) for _ in range(500))
    then = sum(next(calm) for _ in range(500))
    assert 0 < then <= first <= 40
    assert sum(next(noisy) for _ in range(4000)) > 2000
    assert sum(next(calm) for _ in range(4000)) < 2000


def texts() -> list[Script]:
    return [script(0.75, 0.7, seed, prompt=20, count=250) for seed in range(3)]


def tpot_s(factor: float) -> float:
    costs = Costs((8e-3, 1e-3), (2e-3, 1e-3), contention=factor)
    return mean(one.tpot_s for one in decode(costs, "model", None, texts(), schedule=OVERLAPPED))


@pytest.fixture
def uncontrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContentionControl, "observe", lambda *args, **more: None)


def test_a_draft_that_slows_the_target_threefold_costs_little():
    alone = mean(one.tpot_s for one in decode(Costs((8e-3, 1e-3)), "none", 0, texts()))
    assert tpot_s(3.0) < 1.3 * alone


def test_without_it_that_is_noticed(uncontrolled: None):
    with pytest.raises(AssertionError):
        test_a_draft_that_slows_the_target_threefold_costs_little()


def test_where_nothing_is_slowed_trials_cost_little(monkeypatch: pytest.MonkeyPatch):
    controlled = tpot_s(1.0)
    monkeypatch.setattr(ContentionControl, "observe", lambda *args, **more: None)
    assert controlled < 1.04 * tpot_s(1.0)
