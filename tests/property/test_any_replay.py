"""Whatever a text, a drafter, a schedule and costs are: a replay writes the text, in its time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import OTHER, PLACE, measured, trace

from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Plan
from edgedec.records.profile import Contention
from edgedec.replay.run import ReplaySetting, replay

SEQUENTIALLY = ("lookup", "recycle", "model", "tree", "hybrid", "adaptive")
AHEAD = ("model", "hybrid")
LENGTHS = st.one_of(st.none(), st.integers(1, 9))
PLANS = st.one_of(
    st.tuples(st.sampled_from(SEQUENTIALLY), LENGTHS, st.just(SEQUENTIAL)),
    st.tuples(st.sampled_from(AHEAD), LENGTHS, st.just(OVERLAPPED)),
)


@st.composite
def settings_of(draw) -> ReplaySetting:
    """From a draft that is for nothing to one that is slower than the target."""
    target_s = draw(st.floats(1e-4, 1.0))
    share = draw(st.floats(0.02, 2.0))
    factor = draw(st.floats(1.0, 3.0))
    return ReplaySetting(
        measured(one_row_s=target_s, row_s=draw(st.floats(0.0, 0.5)) * target_s),
        measured("draft", share * target_s, row_s=0.1 * share * target_s, place=OTHER),
        overhead_s=draw(st.sampled_from([0.0, 1e-4])),
        draft_overhead_s=draw(st.sampled_from([0.0, 5e-5])),
        contention=Contention(PLACE.label, OTHER.label, factor, factor),
    )


@settings(max_examples=60, deadline=None)
@given(settings_of(), PLANS, st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 50))
def test_any_replay_writes_the_text_and_takes_its_passes_time(setting, how, right, count):
    drafter, length, schedule = how
    plan = Plan(PLACE, OTHER, drafter, length, schedule=schedule)
    text = trace(right, count=len(right))
    (found,) = replay(setting, plan, [text], count)
    assert found.emitted == min(count, len(right))
    assert found.accepted_tokens <= found.drafted_tokens
    assert found.emitted <= found.accepted_tokens + found.target_passes
    # No pass is quicker than one over one row, and at once they may be slower, not quicker.
    least_s = found.target_passes * setting.target.seconds(1, 0)
    assert found.target_s >= 0.999999 * least_s
    assert found.rounds_s >= found.target_s
    assert replay(setting, plan, [text], count) == [found]
