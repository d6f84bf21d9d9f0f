"""Runs the plans that are best by formula, on the user's texts or the built-in ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.errors import ProfileError
from edgedec.loading.sources import Models
from edgedec.planning.contenders import Ran
from edgedec.profiling import trial
from edgedec.profiling.rounds import fitting, some
from edgedec.profiling.run import OnProgress
from edgedec.profiling.trial import TrialJob
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload

# Plans that go on after the first repetition: plain decoding and the best three others.
FINALISTS = 4
_TEXTS = 6
# About the time of the first repetition, and the longest of all in seconds.
_FIRST_S, _BUDGET_S = 15.0, 20.0
# New tokens of a text, and repetitions: fewest and most.
_FEWEST, _MOST = 24, 64
_REPETITIONS = (3, 4)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs plans; see ``choose.Run``.

    Attributes:
        models: the pair.
        profile: its measurements.
        workload: gives the temperature, and the most tokens of a text.
        prompts: tokens of the texts.
        on_progress: called before and after.

    """

    models: Models
    profile: Profile
    workload: Workload
    prompts: Sequence[Sequence[int]]
    on_progress: OnProgress

    def __call__(self, plans: Sequence[Plan], together: bool) -> Ran:
        """Run plans, the first one plain; return their speeds, or why one failed."""
        self.on_progress(f"{len(plans)} plans in turns", 0, 1)
        texts = some(self.prompts, _TEXTS)
        plain = self.profile.at("target", plans[0].target)
        # A plan that drafts takes about two thirds of plain decoding's time.
        each_s = plain.seconds(1, self.workload.middle) * 2 / 3
        new_tokens = int(_FIRST_S / len(texts) / len(plans) / each_s)
        new_tokens = max(_FEWEST, min(new_tokens, _MOST, self.workload.new_tokens))
        job = TrialJob(
            self.models.target,
            self.models.draft,
            tuple(plans),
            fitting(texts, new_tokens, self._measured(plans)),
            new_tokens,
            self.workload.temperature,
            _BUDGET_S,
            *_REPETITIONS,
            FINALISTS,
            together,
        )
        try:
            outcome = trial.run(job)
        except ProfileError as error:
            return Ran(note=str(error))
        finally:
            self.on_progress("done", 1, 1)
        speeds = trial.results(plans, outcome.turns)
        failed = {plans[int(number)]: why for number, why in outcome.failed.items()}
        note = "" if speeds else "; ".join(f"{plan.label}: {why}" for plan, why in failed.items())
        measured = {plans[number]: one for number, one in speeds.items()}
        return Ran({**measured, **failed}, note)

    def _measured(self, plans: Sequence[Plan]) -> list[Measured]:
        every = [self.profile.at("target", plan.target) for plan in plans]
        return every + [self.profile.at("draft", p.draft) for p in plans if p.draft is not None]
