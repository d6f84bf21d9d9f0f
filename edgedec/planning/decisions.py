r"""Makes decisions for bundles and keeps them in files.

::

    decision = plan(
        Models.find("demo"), Workload(prompt_tokens=200, new_tokens=100), memory=512_000_000
    )
    print(decision.chosen.plan.label, *decision.reasons, sep="\n")
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

from edgedec._support.atomic import write_json
from edgedec._support.fields import from_json, printable, to_json
from edgedec.decoding import drafting
from edgedec.errors import MemoryBudgetError, PlanError, RuntimeUnavailable
from edgedec.hardware import machine
from edgedec.loading.sources import Models
from edgedec.planning import streaming
from edgedec.planning.choose import decide
from edgedec.planning.running import Runner
from edgedec.profiling import run
from edgedec.profiling.run import OnProgress, ProfileOptions
from edgedec.profiling.store import Identity, identity
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SCHEDULES, SCHEMA, Decision, Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import LEAST_CONTEXT, Workload

_MOST_BYTES = 8 << 20
_ANEW = "make one with `edgedec plan --out FILE`"
# Upper bounds of numbers in a plan file.
_MOST_THREADS, _MOST_CORES, _MOST_DRAFTED, _MOST_CONTEXT = 1024, 4096, 999, 1 << 31
_MOST_BYTES_HELD = 1 << 60
_LONGEST_NAME, _LONGEST_TEXT = 80, 240


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
    if memory is not None:
        check_memory(memory, models)
    workload = workload or Workload()
    options = _never_whole(models, memory, options)
    options = replace(options, temperature=workload.temperature)
    steps = _Steps(on_progress)
    measured = run.profile(models, options, steps.profile)
    measured = _with_streamed(measured, models, workload, memory, options, steps.profile)
    prompts, notes = options.texts(models), list[str]()
    runner = Runner(models, measured, workload, prompts, steps.trial, notes)
    decision = decide(measured, workload, memory, runner, machine.memory().usable)
    failed = (f"Nothing ran: {printable(note)}." for note in notes)
    return replace(decision, reasons=(*decision.reasons, *failed))


class _Steps:
    """Reports the steps of a profile and of a trial after it as those of one work."""

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


def save(decision: Decision, path: Path) -> None:
    """Write a decision as JSON, atomically.

    Raises:
        PlanError: it cannot be written, or the path is not a plain file.

    """
    check_out(path)
    try:
        write_json(path, to_json(decision), indent=1)
    except OSError as error:
        raise PlanError(
            f"{path} cannot be written: {error.strerror or error}: give another --out"
        ) from None


def check_out(path: Path) -> None:
    """Refuse to replace a link, a device, a pipe or a folder.

    Raises:
        PlanError: the path is one.

    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return  # nothing is there, or writing will report the problem
    if not stat.S_ISREG(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "not a plain file"
        raise PlanError(f"{printable(str(path))} is {kind}, not replaced: give another --out")


def load(path: Path, models: Models) -> Decision:
    """Read a stored decision for these models on this machine.

    Raises:
        PlanError: no such file, or it is damaged or for another version, machine or bundle.

    """
    decision = read(path)
    check(decision, identity(models), path)
    return decision


def read(path: Path, *, advice: str = _ANEW) -> Decision:
    """Read a stored decision, whatever bundle and machine it is for.

    Args:
        path: the file.
        advice: what to do if it cannot be used, for the end of the message; may be empty.

    Raises:
        PlanError: no such file, or it is damaged or written by another version.

    """
    try:
        return _read(path)
    except PlanError as error:
        raise _refusal(str(error), advice) from None


def _refusal(why: str, advice: str) -> PlanError:
    """Return the error in one line, without control characters that the file may contain."""
    return PlanError(printable(f"{why}: {advice}" if advice else why))


def _read(path: Path) -> Decision:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PlanError(f"plan {path} cannot be read ({error.strerror or error})") from None
    if len(data) > _MOST_BYTES:
        raise PlanError(f"plan {path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise PlanError(f"plan {path} is damaged: it is not JSON") from None
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        raise PlanError(f"plan {path}: expected a plan of version {SCHEMA}, found {found!r:.40}")
    try:
        decision = from_json(Decision, raw, f"plan {path}", PlanError)
    except RecursionError:
        raise PlanError(f"plan {path} is damaged") from None
    wrong = ""
    if not LEAST_CONTEXT <= decision.max_context <= _MOST_CONTEXT:
        wrong = f"max_context is {decision.max_context!r:.20}"
    for one in (decision.chosen.plan, *decision.fallbacks):
        wrong = wrong or _wrong_plan(one)
    if wrong:
        raise PlanError(f"plan {path} is damaged: {wrong}")
    return decision


def check(decision: Decision, now: Identity, path: Path, *, advice: str = _ANEW) -> None:
    """Refuse a decision that was made for another machine or bundle.

    Args:
        decision: as read.
        now: this machine and bundle.
        path: the file that it was read from.
        advice: as for ``read``.

    Raises:
        PlanError: names the difference.

    """
    differs = machine.difference(decision.machine, now.machine)
    if differs:
        raise _refusal(f"plan {path} is for another machine: {differs[:_LONGEST_TEXT]}", advice)
    if decision.bundle != now.bundle:
        raise _refusal(
            f"plan {path} is for other models: expected hash {now.bundle[:12]}, found"
            f" {decision.bundle[:12]!r}",
            advice,
        )


def _wrong_plan(plan: Plan) -> str:
    """Return why a plan from a file is invalid (an unknown name, an impossible number), or ""."""
    if not drafting.known(plan.drafter):
        return f"no drafter {plan.drafter!r:.40}"
    try:
        needs_model = drafting.info(plan.drafter).needs_model
    except RuntimeUnavailable as error:
        return str(error)
    if plan.schedule not in SCHEDULES:
        return f"no schedule {plan.schedule!r:.40}"
    if needs_model != (plan.draft is not None):
        return f"drafter {plan.drafter!r} and where its model runs do not go together"
    if plan.schedule == OVERLAPPED and plan.draft is None:
        return f"drafter {plan.drafter!r} has no model that could run while the target verifies"
    length, depth = plan.draft_length or 0, 1 if plan.depth is None else plan.depth
    if not 0 <= length <= _MOST_DRAFTED or not 1 <= depth <= _MOST_DRAFTED:
        return f"drafts of {length!r:.20} tokens and depth {depth!r:.20}"
    return _wrong_place(plan.target) or (_wrong_place(plan.draft) if plan.draft else "")


def _wrong_place(place: Place) -> str:
    names = (place.format, place.device, *([] if place.provider is None else [place.provider]))
    for name in names:
        if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            return f"invalid name of a place: {name!r:.40}"
    if not 0 <= place.threads <= _MOST_THREADS:
        return f"a place has {place.threads!r:.20} threads"
    if not 1 <= (place.weight_memory or 1) <= _MOST_BYTES_HELD:
        return f"a place holds {place.weight_memory!r:.30} bytes of weights"
    cores = (0,) if place.cores is None else place.cores
    if not 1 <= len(cores) <= _MOST_THREADS or not 0 <= min(cores) <= max(cores) < _MOST_CORES:
        return "a place has invalid core numbers"
    return ""
