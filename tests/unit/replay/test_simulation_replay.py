"""Replay and prediction: the real engine in virtual time, held against sums done by hand."""

import math
from dataclasses import replace

import pytest
from simulated import OTHER, PLACE, VOCAB, measured, trace

from edgedec.errors import InputError, ProfileError
from edgedec.planning.predict import predict, tokens_per_second
from edgedec.records.plan import Plan
from edgedec.records.profile import SCHEMA, Profile
from edgedec.records.workload import Workload
from edgedec.replay.run import ReplaySetting, replay

OVERHEAD, DRAFT_OVERHEAD = 2e-4, 5e-5
SETTING = ReplaySetting(
    measured(), measured("draft", 1e-3, row_s=1e-4, place=OTHER), OVERHEAD, DRAFT_OVERHEAD
)
EVERY = [
    ("none", 0),
    ("lookup", 3),
    ("recycle", 5),
    ("model", 1),
    ("model", 4),
    ("tree", 6),
    ("hybrid", 3),
    ("model", None),
    ("tree", None),
    ("hybrid", None),
]


def plan(drafter: str = "none", length: int | None = 0) -> Plan:
    return Plan(PLACE, OTHER, drafter, length)


def by_hand(text, length: int, setting: ReplaySetting = SETTING) -> tuple[float, int]:
    """TPOT and passes of a chain of fixed length, greedy, as the engine's rounds go."""
    words = text.tokens[text.prompt :]
    hits = [ids[0] == token for ids, token in zip(text.draft.ids, words, strict=True)]
    target, draft = setting.target, setting.draft
    at, passes, seconds, first = 0, 0, 0.0, 0
    held = 0  # of the draft's session: tokens of text and prompt
    while at < len(words):
        drafted = min(length, len(words) - at - 1)
        known = text.prompt + at - 1
        accepted = 0
        while accepted < drafted and hits[at + accepted]:
            accepted += 1
        round_s = target.seconds(drafted + 1, known) + setting.overhead_s
        if drafted:
            lag = known - held if passes else 0
            rows = [1 + lag, *[1] * (drafted - 1)]
            round_s += sum(
                draft.seconds(n, held + lag + i if i else held) + setting.draft_overhead_s
                for i, n in enumerate(rows)
            )
            held = known + min(accepted + 1, drafted)
        emitted = accepted + 1
        if passes:
            seconds += round_s
        else:
            first = emitted
        at, passes = at + emitted, passes + 1
    return seconds / (len(words) - first), passes


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.9, 1.0])
def test_a_chain_takes_what_its_rounds_take(length, chance):
    text = trace(chance, prompt=120)
    (found,) = replay(SETTING, plan("model", length), [text], 1000)
    tpot_s, passes = by_hand(text, length)
    assert found.target_passes == passes
    assert found.tpot_s == pytest.approx(tpot_s, rel=1e-9)


def test_a_charge_that_is_forgotten_is_noticed():
    text = trace(0.7, prompt=120)
    (found,) = replay(replace(SETTING, draft_overhead_s=0.0), plan("model", 3), [text], 1000)
    assert found.tpot_s != pytest.approx(by_hand(text, 3)[0], rel=1e-3)


def test_plain_decoding_is_a_pass_and_the_overhead():
    text = trace(prompt=100, count=30)
    (found,) = replay(SETTING, plan(), [text], 30)
    passes = [SETTING.target.seconds(1, 99 + i) + OVERHEAD for i in range(30)]
    assert found.tpot_s == pytest.approx(sum(passes[1:]) / 29)
    assert found.ttft_s == pytest.approx(99 * SETTING.target.prefill_s + passes[0])
    assert found.engine_s == pytest.approx(30 * OVERHEAD)


@pytest.mark.parametrize(("drafter", "length"), EVERY)
def test_every_drafter_writes_the_text_and_no_more_than_asked_for(drafter, length):
    texts = [trace(0.7, seed=seed) for seed in range(2)]
    for count in (1, 17, 60):
        for found in replay(SETTING, plan(drafter, length), texts, count):
            assert found.emitted == count


@pytest.mark.parametrize(("drafter", "length"), EVERY)
def test_the_same_figures_every_time(drafter, length):
    texts = [trace(0.7, seed=seed) for seed in range(2)]
    runs = [replay(SETTING, plan(drafter, length), texts, 60) for _ in range(20)]
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize(("drafter", "length"), [*EVERY[:7], ("model", None)])
def test_costs_that_are_doubled_double_the_time(drafter, length):
    def times(factor: float) -> list[float]:
        target = measured(one_row_s=8e-3 * factor, row_s=1e-3 * factor)
        draft = measured("draft", 1e-3 * factor, row_s=1e-4 * factor)
        setting = ReplaySetting(target, draft, OVERHEAD * factor, DRAFT_OVERHEAD * factor)
        found = replay(setting, plan(drafter, length), [trace(0.7)], 60)[0]
        return [found.tpot_s, found.ttft_s]

    once, twice = times(1), times(2)
    # How often the policy thinks depends on seconds, so with it they are not quite the double.
    assert twice == pytest.approx([2 * s for s in once], rel=1e-9 if length is not None else 0.1)


def test_a_draft_that_is_right_is_accepted_and_one_that_is_wrong_is_not():
    right, wrong = trace(1.0), trace(0.0)
    assert replay(SETTING, plan("model", 4), [right], 60)[0].acceptance_rate == 1
    assert replay(SETTING, plan("model", 4), [wrong], 60)[0].acceptance_rate == 0
    # Its second choice is right half of the time, which only a tree can use.
    assert replay(SETTING, plan("tree", 8), [wrong], 60)[0].accepted_tokens > 5


def test_no_more_branches_are_drafted_than_were_measured():
    text, sizes = trace(0.5, count=60), {}
    for branches, draft_branches in ((None, None), (3, None), (None, 3), (1, 1)):
        setting = replace(
            SETTING,
            target=replace(SETTING.target, branches=branches),
            draft=replace(SETTING.draft, branches=draft_branches),
        )
        for drafter in ("recycle", "adaptive", "tree"):
            if drafter == "tree" and branches == 1:
                continue
            (found,) = replay(setting, plan(drafter, 20), [text], 60)
            assert found.emitted == 60
            sizes[drafter, branches] = found.drafted_tokens
    # What the limit leaves out would have been drafted.
    assert sizes["recycle", 3] < sizes["recycle", None]


def test_a_repeating_text_is_what_lookup_is_for():
    text = trace(count=20, prompt=40, seed=3)
    again = replace(text, tokens=text.tokens[40:60] + text.tokens[40:60] + text.tokens[40:60])
    found = replay(SETTING, plan("lookup", 4), [again], 20)[0]
    assert found.acceptance_rate > 0.7
    assert replay(SETTING, plan("lookup", 4), [text], 20)[0].acceptance_rate < 0.1


def test_the_policy_that_learns_drafts_where_it_pays_and_not_where_it_does_not():
    good, bad = [trace(0.95, seed=s) for s in range(3)], [trace(0.0, seed=s) for s in range(3)]
    plain = tokens_per_second(replay(SETTING, plan(), good, 60))
    assert tokens_per_second(replay(SETTING, plan("model", None), good, 60)) > 1.6 * plain
    assert tokens_per_second(replay(SETTING, plan("model", None), bad, 60)) > 0.8 * plain
    assert tokens_per_second(replay(SETTING, plan("model", 4), bad, 60)) < 0.6 * plain


def test_a_plan_that_cannot_be_replayed_is_refused():
    with pytest.raises(InputError, match="needs a draft model"):
        replay(replace(SETTING, draft=None), plan("model", 2), [trace()], 10)
    with pytest.raises(InputError, match="no draft model"):
        replay(SETTING, plan("model", 2), [replace(trace(), draft=None)], 10)
    with pytest.raises(InputError, match="a trace or more"):
        replay(SETTING, plan(), [], 10)


def profile(**changes) -> Profile:
    known = Profile(
        schema=SCHEMA,
        machine={},
        bundle="",
        versions={},
        measured=(SETTING.target, SETTING.draft),
        contention=(),
        traces=(trace(0.8, prompt=100), trace(0.3, temperature=0.8, prompt=100, seed=1)),
        overhead_s=OVERHEAD,
        draft_overhead_s=DRAFT_OVERHEAD,
    )
    return replace(known, **changes)


def test_a_prediction_is_the_replay_of_the_nearest_texts():
    known = profile()
    cold, warm = (
        predict(known, plan("model", 3), Workload(100, 60, temperature=temperature))
        for temperature in (0.1, 0.7)
    )
    (found,) = replay(SETTING, plan("model", 3), [known.traces[0]], 60)
    assert cold.tokens_per_second == pytest.approx(found.tokens_per_second)
    assert cold.ttft_s == pytest.approx(found.ttft_s)
    assert cold.block_efficiency == pytest.approx(found.block_efficiency)
    assert warm.block_efficiency < cold.block_efficiency
    with pytest.raises(ProfileError, match="profile the bundle again"):
        predict(profile(traces=()), plan(), Workload(100, 60))


def test_a_prediction_is_for_the_workloads_prompt():
    known = profile()
    short, long = (predict(known, plan(), Workload(tokens, 60)) for tokens in (100, 300))
    prefill_s = SETTING.target.prefill_s
    assert long.ttft_s - short.ttft_s == pytest.approx(200 * prefill_s, rel=0.02)
    # 200 tokens of context cost a tenth more.
    ratio = short.tokens_per_second / long.tokens_per_second
    assert 1.05 < ratio < 1.1
    assert long.peak_bytes - short.peak_bytes >= 200 * SETTING.target.kv_bytes_per_token


def test_texts_that_come_in_one_round_are_timed_with_it():
    found = replay(SETTING, plan("model", 8), [trace(1.0)], 5)
    assert found[0].tpot_s == 0
    speed = tokens_per_second(found)
    assert math.isfinite(speed)
    assert speed == pytest.approx(5 / found[0].rounds_s)
    longer = replay(replace(SETTING, prompt_tokens=400), plan("model", 8), [trace(1.0)], 5)
    assert longer[0].ttft_s > 2 * found[0].ttft_s
    assert tokens_per_second(longer) > 5 * 5 / longer[0].ttft_s, "reading a prompt is no decoding"


def test_a_short_text_is_foretold_by_rounds_after_its_first():
    known = profile()
    fewest, short, more = (
        predict(known, plan("model", 8), Workload(100, tokens)) for tokens in (2, 10, 32)
    )
    assert fewest.tokens_per_second == short.tokens_per_second == more.tokens_per_second
    assert fewest.tokens_per_second > 5 / fewest.ttft_s


def test_sampling_costs_whole_rows_and_noise():
    target = measured(transfer_s=1e-4)
    greedy = ReplaySetting(target, overhead_s=OVERHEAD)
    text = trace(prompt=100, count=30, temperature=0.8)
    plain, sampled = (
        replay(setting, plan(), [text], 30)[0]
        for setting in (greedy, replace(greedy, sampled=True))
    )
    more_s = sampled.tpot_s - plain.tpot_s
    assert more_s == pytest.approx(1e-4 + OVERHEAD * 3e-4 * VOCAB)
    known = profile(measured=(target,))
    warm = predict(known, Plan(PLACE), Workload(100, 60, temperature=0.8))
    cold = predict(known, Plan(PLACE), Workload(100, 60))
    assert warm.tokens_per_second < cold.tokens_per_second
