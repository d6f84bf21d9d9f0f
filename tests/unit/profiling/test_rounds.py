"""Measuring drafters within a memory limit."""

from __future__ import annotations

import pytest
from profiles import CPU, PAIR

from edgedec.loading.sources import Models
from edgedec.profiling import rounds, trial
from edgedec.profiling.together import bytes_together
from edgedec.profiling.trial import Outcome, TrialJob
from edgedec.records.plan import Plan

PLAIN, CHAIN = Plan(CPU), Plan(CPU, CPU, "model", None)
TREE = Plan(CPU, CPU, "tree", None)


def test_a_target_loaded_for_trees_counts_beside_that_of_the_others() -> None:
    target = PAIR.at("target", CPU)
    chain, tree = bytes_together((PLAIN, CHAIN), PAIR.at), bytes_together((PLAIN, TREE), PAIR.at)
    assert tree - chain == max(target.rss_bytes, target.weight_bytes) > 0
    assert bytes_together((TREE,), PAIR.at) == chain


def test_drafters_are_measured_one_after_the_other_where_all_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs: list[TrialJob] = []

    def run(job: TrialJob) -> Outcome:
        jobs.append(job)
        return Outcome((), (), 0.0, {})

    monkeypatch.setattr(trial, "run", run)
    for memory in (None, 10**12, 1000):
        rounds.rounds(Models("x", None, {}), PAIR.measured, [[1, 2, 3]], 0.0, memory)
    assert [job.together for job in jobs] == [True, True, False]
