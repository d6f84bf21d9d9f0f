"""Survival by position, counted on recorded texts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.planning.drafts import DraftReplay, child_chances, measure
from edgedec.planning.survival import Survival, SurvivalEstimate
from edgedec.records.trace import Choices, Trace
from tests.simulated import VOCAB, trace

T, F = True, False


def test_survival_is_counted_by_position():
    estimate = SurvivalEstimate(3)
    for drafted, accepted in [(3, 3), (3, 1), (3, 0), (3, 1), (0, 0)]:
        estimate.observe(drafted, accepted)
    found = estimate.survival
    assert found.drafts == pytest.approx(4 / 5)
    assert found.chances == pytest.approx((3 / 4, 1 / 4, 1 / 4))
    assert found.rounds == 5
    assert found.accepted(2) == pytest.approx(4 / 5 * (3 / 4 + 1 / 4))


def naive(rounds: list[tuple[int, int]], most: int) -> list[float]:
    """The broken twin: a chain that ended whole counts as wrong where it ended."""
    return [sum(a > i for _, a in rounds) / len(rounds) for i in range(most)]


def test_a_chain_accepted_whole_says_nothing_of_the_next_position():
    rng = np.random.default_rng(0)
    chance, rounds = 0.8, []
    for _ in range(4000):
        run = int(rng.geometric(1 - chance)) - 1
        drafted = int(rng.integers(1, 7))
        rounds.append((drafted, min(run, drafted)))
    estimate = SurvivalEstimate(6)
    for drafted, accepted in rounds:
        estimate.observe(drafted, accepted)
    truth = [chance**i for i in range(1, 7)]
    assert estimate.survival.chances == pytest.approx(truth, abs=0.04)
    assert naive(rounds, 6) != pytest.approx(truth, abs=0.2), "the twin must be caught"


def test_nothing_is_promised_beyond_what_was_drafted():
    estimate = SurvivalEstimate(4)
    estimate.observe(2, 2)
    assert estimate.survival.chances == (1.0, 1.0, 0.0, 0.0)
    assert SurvivalEstimate(2).survival == Survival(0.0, (0.0, 0.0), 0.0)


def test_the_error_is_that_of_a_mean():
    rng = np.random.default_rng(1)
    means = []
    for _ in range(300):
        estimate = SurvivalEstimate(4)
        for _ in range(50):
            estimate.observe(4, min(4, int(rng.geometric(0.4)) - 1))
        means.append(estimate.survival.accepted(4))
    assert estimate.survival.error(4) == pytest.approx(np.std(means), rel=0.25)


def test_a_model_chain_is_walked_as_the_loop_would():
    # Positions:      0  1  2  3  4  5  6  7
    text = trace([T, T, F, T, T, T, T, F], count=8)
    rounds = list(DraftReplay(text).rounds("model", 3))
    # From 0 two are right and 2 is the target's; from 3 three, and 6 is the bonus.
    assert [(r.nodes, r.accepted) for r in rounds] == [(3, 2), (3, 3), (0, 0)]
    assert sum(r.accepted + 1 for r in rounds) == 8


@pytest.mark.parametrize("drafter", ["model", "lookup", "hybrid", "recycle"])
@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_every_drafter_writes_the_whole_text(drafter, length):
    text = repetitive(40)
    rounds = list(DraftReplay(text).rounds(drafter, length))
    assert sum(r.accepted + 1 for r in rounds) == 40
    assert all(r.accepted <= r.depth <= r.nodes <= length for r in rounds)


def repetitive(count: int, period: int = 7, right: float = 0.5) -> Trace:
    """A text that says the same over and over, its prompt included."""
    made = trace(right, prompt=20, count=count)
    tokens = tuple(itertools.islice(itertools.cycle(range(3, 3 + period)), 20 + count))
    rows = tuple((token, (token + 1) % VOCAB) for token in tokens[20:])
    chances = tuple((0.8, 0.1) for _ in rows)
    return replace(made, tokens=tokens, target=Choices(rows, chances), draft=Choices(rows, chances))


def test_lookup_is_the_real_one():
    rng = np.random.default_rng(2)
    tokens = tuple(int(t) for t in rng.integers(0, 6, 120))
    rows = tuple((token, (token + 1) % 6) for token in tokens[20:])
    text = Trace("x", 0.0, 20, tokens, Choices(rows, tuple((0.9, 0.1) for _ in rows)), None)
    sampler = Sampler(SamplingParams(), 6, tokens[:20])
    drafter = drafting.create("lookup", DrafterParts(6))
    drafter.begin(tokens[:20], sampler)
    expected, position = [], 20
    while position < 120:
        limits = DraftLimits(min(4, 119 - position), 4)
        draft = drafter.propose(tokens[position - 1], limits, lambda step: True, sampler.streams)
        right = itertools.takewhile(
            lambda pair: pair[0] == pair[1],
            zip(draft.tree.tokens[1:], tokens[position:], strict=False),
        )
        accepted = len(list(right))
        expected.append((draft.drafted, accepted))
        sampler.push(tokens[position : position + accepted + 1])
        position += accepted + 1
    rounds = DraftReplay(text).rounds("lookup", 4)
    assert [(r.nodes, r.accepted) for r in rounds] == expected
    assert {drafted > 0 for drafted, _ in expected} == {True, False}


def test_lookup_does_well_on_repetition_and_a_model_where_it_is_right():
    texts = [DraftReplay(repetitive(60))]
    assert measure(texts, "lookup", 4)["lookup"].survival.chances[3] == pytest.approx(1.0)
    good = [DraftReplay(trace(0.95, count=300))]
    bad = [DraftReplay(trace(0.2, count=300))]
    chance = [measure(t, "model", 4)["model"].survival.chances[0] for t in (good, bad)]
    assert chance == pytest.approx([0.95, 0.2], abs=0.07)


def test_hybrid_asks_lookup_first():
    found = measure([DraftReplay(repetitive(60))], "hybrid", 3)
    assert found["lookup"].survival.drafts > 0.9
    alone = measure([DraftReplay(trace(0.7, count=80))], "hybrid", 3)
    assert alone["model"].survival.drafts > alone.get("lookup", alone["model"]).survival.drafts / 2


def test_recycling_learns_from_the_targets_rows():
    found = measure([DraftReplay(repetitive(60))], "recycle", 6)["recycle"]
    assert found.survival.accepted(6) > 1
    assert 1 <= found.nodes <= 6
    chain = list(DraftReplay(repetitive(60)).rounds("recycle", 6, branches=1))
    assert all(r.nodes == r.depth for r in chain)
    few = list(DraftReplay(repetitive(60)).rounds("recycle", 16, branches=2))
    many = list(DraftReplay(repetitive(60)).rounds("recycle", 16))
    assert max(r.nodes for r in chain) < max(r.nodes for r in few) < max(r.nodes for r in many)


def test_children_are_counted_by_rank():
    text = trace([T, T, F, F, T], count=5, seed=3)
    assert text.draft is not None
    ranks = [ids.index(t) for ids, t in zip(text.draft.ids, text.tokens[20:], strict=True)]
    chances = child_chances([DraftReplay(text)])
    assert chances[0] == pytest.approx(3 / 5)
    assert [round(5 * c) for c in chances] == [ranks.count(rank) for rank in range(8)]
    assert child_chances([DraftReplay(replace(text, draft=None))]) == ()


def test_without_a_draft_model_nothing_is_drafted_by_one():
    text = replace(trace(0.9), draft=None)
    assert measure([DraftReplay(text)], "model", 3) == {}
    assert set(measure([DraftReplay(replace(repetitive(60), draft=None))], "hybrid", 3)) == {
        "lookup"
    }
