"""The trial that a plan asks for: its texts, their length, and what comes of its result."""

from __future__ import annotations

from typing import Any

import pytest
from profiles import CPU, PAIR, draft, profile, target

from edgedec.errors import ProfileError
from edgedec.hardware.contention import Usage
from edgedec.loading.sources import Models
from edgedec.planning import decisions
from edgedec.planning.contenders import Trials
from edgedec.planning.decisions import Runner
from edgedec.profiling.trial import Outcome, TrialJob, Turn
from edgedec.records.plan import Plan
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload

PLANS = (Plan(CPU), Plan(CPU, None, "lookup", 2), Plan(CPU, CPU, "model", 3))
TEXTS = [[number] * 300 for number in range(1, 13)]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[TrialJob]:
    """What was asked for; the second plan is twice as fast as the first, the third fails."""
    found: list[TrialJob] = []

    def run(job: TrialJob) -> Outcome:
        found.append(job)
        turns = (Turn(0, 0, 0, 0.02, 10, 10), Turn(1, 0, 0, 0.01, 10, 5))
        failed = {"2": "the device went away"} if len(job.plans) > 2 else {}
        return Outcome(turns, (None,) * len(job.plans), 0.0, failed)

    monkeypatch.setattr(decisions.trial, "run", run)
    return found


def run(known: Profile = PAIR, **workload: Any) -> tuple[Any, list[tuple[str, int, int]]]:
    steps: list[tuple[str, int, int]] = []
    chosen = Workload(**{"prompt_tokens": 20, "new_tokens": 200, **workload})
    models = Models("a bundle", "a draft", {})
    runner = Runner(models, known, chosen, TEXTS, lambda *step: steps.append(step))
    return runner(PLANS, True).found, steps


def test_speeds_and_failures_are_told_by_plan(jobs: list[TrialJob]) -> None:
    found, steps = run()
    assert found[PLANS[0]].speedup == 1.0
    assert found[PLANS[1]].speedup == pytest.approx(2.0)
    assert found[PLANS[2]] == "the device went away"
    assert steps == [("3 plans in turns", 0, 1), ("done", 1, 1)]


def test_how_busy_the_machine_is_meanwhile_is_told(
    jobs: list[TrialJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([Usage(0.0, 50.0, 10.0, 2), Usage(10.0, 65.0, 15.0, 2)])
    monkeypatch.setattr(decisions, "usage", lambda: next(moments))
    runner = Runner(Models("x", None, {}), PAIR, Workload(), TEXTS, lambda *step: None)
    assert runner(PLANS, True).busy == pytest.approx(0.5)


def test_a_few_texts_evenly_spaced_are_decoded_as_the_workload_says(jobs: list[TrialJob]) -> None:
    run(temperature=0.7)
    (job,) = jobs
    assert (job.bundle, job.draft_model, job.plans) == ("a bundle", "a draft", PLANS)
    assert [prompt[0] for prompt in job.prompts] == [1, 3, 5, 7, 9, 11]
    assert job.temperature == 0.7
    assert job.new_tokens == 64
    assert job.together
    run(new_tokens=30)
    assert jobs[-1].new_tokens == 30


def test_a_slow_target_decodes_fewer_tokens_and_a_short_context_shorter_prompts(
    jobs: list[TrialJob],
) -> None:
    run(profile(target(one_row_s=1.0), draft()))
    assert jobs[-1].new_tokens == 24
    run(profile(target(), draft(max_context=100)))
    assert {len(prompt) for prompt in jobs[-1].prompts} == {50}


def test_where_models_take_long_to_load_the_last_plans_do_not_run(jobs: list[TrialJob]) -> None:
    models = Models("x", None, {})
    slow = profile(target(load_s=25.0), draft(load_s=10.0))
    runner = Runner(models, slow, Workload(), TEXTS, lambda *step: None)
    for together, plans in ((True, PLANS), (False, PLANS[:2])):
        runner(PLANS, together)
        assert jobs[-1].plans == plans
        assert jobs[-1].together == together
    assert jobs[-1].fewest == 1


def test_where_a_repetition_would_take_long_fewer_texts_run(jobs: list[TrialJob]) -> None:
    run(profile(target(one_row_s=1.0, prefill_s=1e-3), draft()))
    assert (len(jobs[-1].plans), len(jobs[-1].prompts)) == (3, 2)
    run(profile(target(one_row_s=9.0, prefill_s=1e-3), draft()))
    assert (len(jobs[-1].plans), len(jobs[-1].prompts)) == (2, 2)


LATE, FIRST = "no time was left for them", "no text went on after the first round"
ONE = (Turn(0, 0, 0, 0.02, 10, 10),)
ENDED = (Turn(0, 0, 0, 0.0, 1, 1), Turn(1, 0, 0, 0.0, 1, 1))


@pytest.mark.parametrize(
    ("turns", "failed", "note"),
    [
        (ONE, (), LATE),
        (ONE, ("1",), LATE),
        (ONE, [str(number) for number in range(1, len(PLANS))], ""),
        (ENDED, (), FIRST),
        (ENDED, ("2",), FIRST),
        ((), (), LATE),
    ],
)
def test_plans_without_a_comparison_are_told(
    turns: tuple[Turn, ...], failed: list[str], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time was left for them, or their texts ended in the first round."""
    found = Outcome(turns, (None,) * 3, 0.0, dict.fromkeys(failed, "no device"))
    monkeypatch.setattr(decisions.trial, "run", lambda job: found)
    runner = Runner(Models("x", None, {}), PAIR, Workload(), TEXTS, lambda *step: None)
    said = runner(PLANS, True).note
    assert said.startswith(note) if note == FIRST else said == note
    assert ("no device" in said) == (note == FIRST and bool(failed))


def test_a_trial_that_fails_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: TrialJob) -> Outcome:
        raise ProfileError("plans could not be run: it crashed")

    monkeypatch.setattr(decisions.trial, "run", fails)
    runner = Runner(Models("x", None, {}), PAIR, Workload(), TEXTS, lambda *step: None)
    assert runner(PLANS, True) == Trials(note="plans could not be run: it crashed")
    failed = {"0": "no device", "1": "no memory"}
    monkeypatch.setattr(decisions.trial, "run", lambda job: Outcome((), (None,) * 3, 0.0, failed))
    ran = runner(PLANS, True)
    assert ran.found == {PLANS[0]: "no device", PLANS[1]: "no memory"}
    assert ran.note == f"{PLANS[0].label}: no device; {PLANS[1].label}: no memory"
