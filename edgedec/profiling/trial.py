"""Runs plans for real: they decode the same texts in turns, in one child process.

Turns alternate text by text (A B C D, A B C D, ...), so that a machine whose speed drifts slows all
plans alike, and a plan is compared with another on the same text at the same time. Every
repetition begins with new engines: a drafter that learns must not have seen the text before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, harmonic_mean, median
from typing import Any

from edgedec._support.fields import from_json, to_json
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, ProfileError
from edgedec.profiling.children import QUIET
from edgedec.records.plan import Plan, Trial
from edgedec.records.rounds import DrafterRounds

CHILD = "edgedec.profiling._trial_child"
# Allowance for loading, compiling and a busy machine; a trial that takes longer hangs.
_LIMIT_S, _LIMIT_FACTOR = 120.0, 20


@dataclass(frozen=True, slots=True)
class TrialJob:
    """Plans to run on texts.

    Attributes:
        bundle, draft_model: as the user named the models.
        plans: the first one is plain; the others are compared with it.
        prompts: their tokens.
        new_tokens: most new tokens of a text.
        temperature: 0 is greedy.
        budget_s: no repetition begins after this many seconds.
        fewest, most: repetitions of all texts; the first of them run whatever the time.
        finalists: plans that go on after the first repetition, the best ones and the first.
        together: all models stay loaded and plans take turns; otherwise one plan decodes all texts
            after the other, which takes less memory.
        failed: plans that failed before and do not run, by number with the reason.

    """

    bundle: str
    draft_model: str | None
    plans: tuple[Plan, ...]
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    temperature: float = 0.0
    budget_s: float = 0.0
    fewest: int = 1
    most: int = 1
    finalists: int = 1
    together: bool = True
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One text decoded with one plan.

    Attributes:
        tpot_s: seconds per token after the first round, without pauses; 0 if there was no other.
        emitted, passes: tokens, and passes of the target.

    """

    plan: int
    text: int
    repetition: int
    tpot_s: float
    emitted: int
    passes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    Attributes:
        turns: in the order they ran; none if plain decoding failed.
        rounds: of each plan that ran, in the order of plans; ``None`` for one that failed.
        draft_token_s: median seconds that a draft model took for a token; 0 if none drafted.
        failed: why each plan failed, by its number.
        head_token_s: as ``draft_token_s``, of a head.

    """

    turns: tuple[Turn, ...]
    rounds: tuple[DrafterRounds | None, ...]
    draft_token_s: float
    failed: dict[str, str]
    head_token_s: float = 0.0


def run(job: TrialJob, module: str = CHILD) -> Outcome:
    """Run a trial in a child process.

    A plan whose turn ends the process, or does not end, has failed. The others run once more
    without it, unless they have all decoded the texts before.

    Raises:
        ProfileError: the child could not open the models, or ended before any plan began.

    """
    first = _attempt(job, module)
    if isinstance(first, Outcome):
        return first
    kept = first.outcome()
    if first.begun is not None and first.begun.repetition and _compares(job, kept):
        return kept
    again = _attempt(replace(job, failed=first.failed), module)
    return again if isinstance(again, Outcome) else again.outcome()


@dataclass(frozen=True, slots=True)
class TurnKey:
    """A turn that begins; the attributes are as those of ``Turn``."""

    plan: int
    text: int
    repetition: int


@dataclass(slots=True)
class _Attempt:
    """The reports of a child process up to its failure."""

    job: TrialJob
    failed: dict[str, str]
    turns: list[Turn] = field(default_factory=list)
    begun: TurnKey | None = None

    def take(self, report: Any) -> None:
        """Take a report: a plan's failure, a turn that begins, or one that has ended."""
        if "failed" in report:
            self.failed.update(report["failed"])
        elif "tpot_s" in report:
            self.turns.append(from_json(Turn, report, "turn", ProfileError))
        else:
            self.begun = from_json(TurnKey, report, "turn", ProfileError)

    def outcome(self) -> Outcome:
        """Return what the child measured before, without averages of rounds."""
        turns = [one for one in self.turns if str(one.plan) not in self.failed]
        if self.begun is not None:
            turns = whole(self.job, turns, self.begun)
        found = Outcome(tuple(turns), (None,) * len(self.job.plans), 0.0, self.failed)
        return found if _compares(self.job, found) else replace(found, turns=())


def limit_s(job: TrialJob) -> float:
    """Return the seconds after which a trial's process is ended."""
    return _LIMIT_S + _LIMIT_FACTOR * max(job.budget_s, 1.0)


def _attempt(job: TrialJob, module: str) -> Outcome | _Attempt:
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=limit_s(job))
    attempt = _Attempt(job, dict(job.failed))
    try:
        answer = ask_once(module, to_json(job), limits, environment=QUIET, on_report=attempt.take)
        return from_json(Outcome, answer, "trial", ProfileError)
    except (Stopped, Refused, EdgedecError) as error:
        if attempt.begun is None or not isinstance(error, Stopped):
            raise ProfileError(f"plans could not be run: {error}") from None
        attempt.failed[str(attempt.begun.plan)] = f"when it ran, {error}"
        return attempt


def _compares(job: TrialJob, outcome: Outcome) -> bool:
    ran = {turn.plan for turn in outcome.turns}
    return len(ran) > 1 and any(job.plans[plan].plain for plan in ran)


def whole(job: TrialJob, turns: Sequence[Turn], last: TurnKey) -> list[Turn]:
    """Return the comparable turns among those before one that never ended.

    That is all repetitions before; in the first one, the texts before, or the plans before if they
    run one after the other.
    """
    if last.repetition:
        return [turn for turn in turns if turn.repetition < last.repetition]
    if job.together:
        return [turn for turn in turns if turn.text != last.text]
    return [turn for turn in turns if turn.plan != last.plan]


def results(plans: Sequence[Plan], turns: Sequence[Turn]) -> dict[int, Trial]:
    """Return the measured speed of each plan, by its number.

    A text counts if all plans decoded more than its first round. Speed-ups are over the fastest
    plain plan. Without one there are no results.

    Args:
        turns: of those that ran; a plan that failed has none.

    """
    ran = sorted({turn.plan for turn in turns})
    plain = [plan for plan in ran if plans[plan].plain]
    texts = [text for text in sorted({turn.text for turn in turns}) if _counts(turns, ran, text)]
    if not texts or not plain:
        return {}
    ratios = {plan: [_ratio(turns, plain[0], plan, text) for text in texts] for plan in ran}
    seconds = fmean(median(_tpots(turns, plain[0], text)) for text in texts)
    base = max(plain, key=lambda plan: harmonic_mean(ratios[plan]))
    found = {}
    for plan in ran:
        own = [turn for turn in turns if turn.plan == plan]
        relative = [a / b for a, b in zip(ratios[plan], ratios[base], strict=True)]
        found[plan] = Trial(
            tokens_per_second=harmonic_mean(ratios[plan]) / seconds,
            speedup=harmonic_mean(ratios[plan]) / harmonic_mean(ratios[base]),
            texts=tuple(relative),
            block_efficiency=sum(t.emitted for t in own) / sum(t.passes for t in own),
            turns=len(own),
        )
    return found


def _counts(turns: Sequence[Turn], plans: Sequence[int], text: int) -> bool:
    return all(_tpots(turns, plan, text) for plan in plans)


def _tpots(turns: Sequence[Turn], plan: int, text: int) -> list[float]:
    return [t.tpot_s for t in turns if (t.plan, t.text) == (plan, text) and t.tpot_s > 0]


def _ratio(turns: Sequence[Turn], first: int, plan: int, text: int) -> float:
    """Return the median over repetitions of the first plan's TPOT over this one's."""
    of_first = {t.repetition: t.tpot_s for t in turns if (t.plan, t.text) == (first, text)}
    return median(
        of_first[t.repetition] / t.tpot_s
        for t in turns
        if (t.plan, t.text) == (plan, text) and t.tpot_s > 0 and t.repetition in of_first
    )
