r"""Makes decisions for bundles.

::

    decision = plan(
        Models.find("demo"), Workload(prompt_tokens=200, new_tokens=100), memory=512_000_000
    )
    print(decision.chosen.plan.label, *decision.reasons, sep="\n")
"""

from __future__ import annotations

from dataclasses import replace

from edgedec.errors import MemoryBudgetError
from edgedec.hardware import machine
from edgedec.loading.sources import Models
from edgedec.planning import streaming
from edgedec.planning.choose import decide
from edgedec.planning.running import Runner
from edgedec.profiling import run
from edgedec.profiling.run import OnProgress, ProfileOptions
from edgedec.records.place import Place
from edgedec.records.plan import Decision
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload


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
        models: the pair.
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
