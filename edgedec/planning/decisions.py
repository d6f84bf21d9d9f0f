r"""Makes decisions for bundles.

::

    decision = plan(
        Models.find("demo"), Workload(prompt_tokens=200, new_tokens=100), memory=512_000_000
    )
    print(decision.chosen.plan.label, *decision.reasons, sep="\n")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgedec.decoding import drafting
from edgedec.errors import MemoryBudgetError, ProfileError
from edgedec.hardware import machine
from edgedec.hardware.contention import by_others, usage
from edgedec.loading.sources import Models
from edgedec.planning import streaming
from edgedec.planning.choose import decide
from edgedec.planning.contenders import Trials
from edgedec.profiling import run, trial
from edgedec.profiling.rounds import fitting, some
from edgedec.profiling.run import OnProgress, ProfileOptions
from edgedec.profiling.trial import TrialJob
from edgedec.records.place import Place
from edgedec.records.plan import Decision, Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload

# Plans that go on after the first repetition: plain decoding and the best three others.
FINALISTS = 4
_TEXTS = 6
# Approximate time of the first repetition, and the time limit of all, in seconds.
_FIRST_S, _BUDGET_S = 15.0, 20.0
# New tokens of a text, and repetitions: fewest and most.
_FEWEST, _MOST = 24, 64
_REPETITIONS = (3, 4)
# Plans that run one after the other load their models again in each repetition.
_REPETITIONS_APART = (1, 3)
# A first repetition that would take longer than this has fewer texts and plans, these at least.
_LONGEST_S, _FEWEST_TEXTS, _FEWEST_PLANS = 120.0, 2, 2
_NO_TIME = "no time was left for them"
_ONE_ROUND = "no text went on after the first round of every plan: give others with --prompts"


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs plans; see ``choose.Run``.

    Attributes:
        workload: gives the temperature, and the most tokens of a text.
        prompts: tokens of the texts.
        on_progress: called before and after.

    """

    models: Models
    profile: Profile
    workload: Workload
    prompts: Sequence[Sequence[int]]
    on_progress: OnProgress

    def __call__(self, plans: Sequence[Plan], together: bool) -> Trials:
        """Run plans, the first one plain; return their speeds, or why one failed."""
        plans, texts = self._in_time(plans, together)
        self.on_progress(f"{len(plans)} plans in turns", 0, 1)
        new_tokens = self._new_tokens(plans, len(texts))
        fewest, most = _REPETITIONS if together else _REPETITIONS_APART
        job = TrialJob(
            self.models.target, self.models.draft, tuple(plans),
            fitting(texts, new_tokens, self._measured(plans)),
            new_tokens, self.workload.temperature, _BUDGET_S,
            fewest, most, FINALISTS, together,
        )  # fmt: skip
        before = usage()
        try:
            outcome = trial.run(job)
        except ProfileError as error:
            return Trials(note=str(error))
        finally:
            self.on_progress("done", 1, 1)
        busy = by_others(before, usage())
        speeds = trial.results(plans, outcome.turns)
        failed = {plans[int(number)]: why for number, why in outcome.failed.items()}
        note = ""
        if not speeds:
            notes = [f"{plan.label}: {why}" for plan, why in failed.items()]
            note = "; ".join([_ONE_ROUND, *notes] if outcome.turns else notes or [_NO_TIME])
        elif len(speeds) + len(failed) < len(plans) and all(plans[one].plain for one in speeds):
            note = _NO_TIME
        measured = {plans[number]: one for number, one in speeds.items()}
        return Trials({**measured, **failed}, note, busy)

    def _in_time(
        self, plans: Sequence[Plan], together: bool
    ) -> tuple[Sequence[Plan], Sequence[Sequence[int]]]:
        """Return the plans and texts to run, fewer of both if all would take too long."""
        while len(plans) > _FEWEST_PLANS and self._load_s(plans, together) > _LONGEST_S / 2:
            plans = plans[:-1]
        texts = some(self.prompts, _TEXTS)
        while self._first_s(plans, texts, together) > _LONGEST_S:
            if len(texts) > _FEWEST_TEXTS:
                texts = some(self.prompts, len(texts) - 1)
            elif len(plans) > _FEWEST_PLANS:
                plans = plans[:-1]
            else:
                break
        return plans, texts

    def _first_s(
        self, plans: Sequence[Plan], texts: Sequence[Sequence[int]], together: bool
    ) -> float:
        """Return the seconds of the first repetition, by formula."""
        plain = self.profile.at("target", plans[0].target)
        decode_s = self._new_tokens(plans, len(texts)) * self._token_s(plans)
        prefill_s = plain.prefill_s * sum(map(len, texts)) / len(texts)
        turns = len(plans) * len(texts)
        return self._load_s(plans, together) + turns * (decode_s + prefill_s)

    def _load_s(self, plans: Sequence[Plan], together: bool) -> float:
        every = self._measured(plans)
        if together:
            every = list({(one.role, one.place): one for one in every}.values())
        return sum(one.load_s for one in every)

    def _new_tokens(self, plans: Sequence[Plan], texts: int) -> int:
        new_tokens = int(_FIRST_S / texts / len(plans) / self._token_s(plans))
        return max(_FEWEST, min(new_tokens, _MOST, self.workload.new_tokens))

    def _token_s(self, plans: Sequence[Plan]) -> float:
        # A plan that drafts takes about two thirds of plain decoding's time.
        plain = self.profile.at("target", plans[0].target)
        return plain.seconds(1, self.workload.middle) * 2 / 3

    def _measured(self, plans: Sequence[Plan]) -> list[Measured]:
        every = [self.profile.at("target", plan.target) for plan in plans]
        every += [self.profile.at("draft", p.draft) for p in plans if p.draft is not None]
        headed = (p.target for p in plans if drafting.info(p.drafter).needs_head)
        return every + [one for p in headed if (one := self.profile.head_beside(p)) is not None]


def plan(
    models: Models,
    workload: Workload | None = None,
    *,
    memory: int | None = None,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Decision:
    """Decide where a pair's models run, which drafter is used and how much it drafts.

    Earlier measurements of passes are used where they still hold; otherwise the models are measured
    now. The plans that are best by formula then run in turns, which takes a few seconds each.

    Args:
        workload: what is to be decoded; None is a prompt of 256 tokens and 128 new ones, greedily.
        memory: most bytes that the plan may hold; None is all that is available to this process.
        options: what to measure, and the texts.
        on_progress: called with what is being measured.

    Raises:
        InputError, ProfileError: see ``run.profile``.
        PlanError: there is no place where the target computes correctly.
        MemoryBudgetError: nothing fits; names the smallest memory that is enough.

    """
    if memory is not None and not (options and options.wanted.rpc):
        check_memory(memory, models)
    workload = workload or Workload()
    options = _never_whole(models, memory, options)
    options = replace(options, temperature=workload.temperature, memory=memory)
    steps = _Steps(on_progress)
    measured = run.profile(models, options, steps.profile)
    measured = _with_streamed(measured, models, workload, memory, options, steps.profile)
    runner = Runner(models, measured, workload, options.texts(models), steps.trial)
    return decide(measured, workload, memory, runner, machine.memory().usable)


class _Steps:
    """Reports the steps of a profile and of the trial after it as one progress."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._before = 0

    def profile(self, what: str, done: int, steps: int) -> None:
        self._before = max(self._before, steps)
        if self._on_progress is not None and done < steps:
            self._on_progress(what, self._before - steps + done, self._before + 1)

    def trial(self, what: str, done: int, steps: int) -> None:
        if self._on_progress is not None:
            self._on_progress(what, self._before + done, self._before + steps)


def _never_whole(
    models: Models, memory: int | None, options: ProfileOptions | None
) -> ProfileOptions:
    """Return options that stream the target's weights if they exceed the memory given."""
    options = options or ProfileOptions()
    held = streaming.to_begin_with(models.sources, memory)
    return replace(options, wanted=replace(options.wanted, weight_memory=held))


def _with_streamed(
    profile: Profile,
    models: Models,
    workload: Workload,
    memory: int | None,
    options: ProfileOptions,
    on_progress: OnProgress,
) -> Profile:
    """Return the profile, with a place that streams the target's weights if they do not fit."""

    def measure(place: Place, context: int) -> Measured:
        # Its memory is planned for this context: a longer one would take more.
        return run.measure_target(models, place, options, on_progress, context)

    found, new = streaming.with_streamed(profile, memory, workload, measure)
    if new:
        run.keep(models, found)
    return found


def streams(decision: Decision, models: Models) -> str:
    """Return a sentence for the user if the chosen plan reads weights in every pass; else empty."""
    wanted = decision.chosen.plan.target.format
    (files,) = (one.files.values() for one in models.sources["target"] if one.format == wanted)
    return streaming.note(decision, sum(file.stat().st_size for file in files))


def check_memory(memory: int, models: Models) -> None:
    """Refuse a limit that is smaller than the target's weights, before measuring for a minute.

    Raises:
        MemoryBudgetError: names the size of weights and process; ``decide``, which has measured
            costs, names the smallest memory that is enough.

    """
    sources = models.sources["target"]
    weights = min(sum(file.stat().st_size for file in one.files.values()) for one in sources)
    # Weights that do not fit can be streamed: the planner decides how much must stay in memory.
    least = streaming.LEAST_PROCESS + (0 if streaming.possible(models.sources) else weights)
    if memory < least and run.read_cached(models) is None:
        raise MemoryBudgetError(
            f"{memory / 1e6:.3g} MB is too little for any plan: the target's weights take"
            f" {weights / 1e6:.0f} MB and a process that runs them"
            f" {streaming.LEAST_PROCESS / 1e6:.0f} MB,"
            " before any cache: `edgedec plan` without --memory shows what each plan takes"
        )
