"""Ways to open a bundle, most wanted first: when one fails, the next takes over.

The text does not depend on the way, near-ties of quantised arithmetic aside: the target's tokens
are drawn with the same noise at the same positions, whichever drafter runs and wherever.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line, printable
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import (
    BundleError,
    EdgedecError,
    InputError,
    PassFailed,
    RuntimeUnavailable,
)
from edgedec.loading import build
from edgedec.loading.build import OpenOptions, Parts
from edgedec.memory.grant import granting
from edgedec.planning import remembered
from edgedec.records.place import CPU
from edgedec.records.plan import SEQUENTIAL, Decision, Plan
from edgedec.records.workload import Workload
from edgedec.runtimes import registry

_log = logging.getLogger("edgedec")
# Options that a plan decides; where the user sets one, no plan is made.
_DECIDED = (
    "draft", "draft_length", "draft_load", "format", "threads", "batch_threads", "providers",
    "device", "gpu_layers", "cores", "schedule", "weight_memory",
)  # fmt: skip
# How messages name those that the command line has under another name, or not at all.
_NAMED = {"providers": "--provider", "draft_load": "draft_load", "cores": "cores"}
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(OpenOptions)}
# Errors of a place that cannot be used, at load or in the middle of a text.
FAILURES = (RuntimeUnavailable, BundleError, PassFailed)
# A way to decode: its name in messages, and the options that open it.
Named = tuple[str, OpenOptions]


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why no plan is followed, in a few words."""

    reason: str


def placed(options: OpenOptions, plan: Plan, context_limit: int | None) -> OpenOptions:
    """Return ``options`` with models where a plan puts them.

    If a rule's text depends on the drafts, or texts take turns, they are made sequentially.
    """
    target = plan.target
    together = options.accept in (None, "coupling", "match") and options.parallel == 1
    return dataclasses.replace(
        options,
        threads=target.threads or None,
        cores=target.cores,
        providers=target.load_options().providers,
        device=target.load_options().device,
        weight_memory=target.weight_memory,
        format=target.format,
        draft=plan.drafter,
        draft_length="auto" if plan.draft_length is None else plan.draft_length,
        draft_depth=plan.depth,
        draft_load=None if plan.draft is None else plan.draft.load_options(),
        draft_format=None if plan.draft is None else plan.draft.format,
        schedule=plan.schedule if together else SEQUENTIAL,
        context_limit=context_limit,
    )


def planned_ways(decision: Decision, options: OpenOptions) -> list[Named]:
    """Return a decision's plan, then its fallbacks; all plain if the options ask for that."""
    plans = [decision.chosen.plan, *decision.fallbacks]
    if options.draft == PLAIN:
        plans = list(dict.fromkeys(Plan(plan.target) for plan in plans))
    if options.row_invariant:
        # Row invariance is guaranteed for chains only, and these drafters draft trees.
        plans = [plan for plan in plans if not drafting.info(plan.drafter).branches]
    return [(plan.label, placed(options, plan, decision.max_context)) for plan in plans]


def ways_without_plan(options: OpenOptions) -> list[Named]:
    """Return the way asked for, then it without a draft model, then plain on the processor."""
    ways = [("what was asked for", options)]
    # A drafter that needs no model stays.
    alone: dict[str, Any] = {"draft_model": None, "draft_load": None, "draft_format": None}
    if drafting.info(options.draft).needs_model or options.draft == "auto":
        drafter = drafting.default(with_model=False)
        changed = dataclasses.replace(options, draft=drafter, schedule=SEQUENTIAL, **alone)
        ways.append(("what needs no draft model", changed))
    on_device = options.device is not None or options.gpu_layers is not None
    plain = dataclasses.replace(
        options, draft=PLAIN, draft_length="auto", schedule=SEQUENTIAL, **alone,
        providers=(), device=CPU if on_device else None, gpu_layers=None, cores=None,
    )  # fmt: skip
    return [*ways, ("plain decoding on the processor", plain)]


def opener(bundle: str | Path, options: OpenOptions) -> Opener:
    """Return an opener that follows the bundle's plan, or ``options`` if there is none.

    Raises:
        InputError: both a plan and an option that plans decide were given.
        BundleError, PlanError, MemoryBudgetError: see ``edgedec.planning.decisions``.

    """
    found = _decision(bundle, options)
    if isinstance(found, NoPlan):
        return Opener(bundle, ways_without_plan(options), planned=False, no_plan=found.reason)
    ways = planned_ways(found, options)
    if not ways:
        reason = "--row-invariant takes chains, and the plan drafts trees"
        return Opener(bundle, ways_without_plan(options), planned=False, no_plan=reason)
    return Opener(bundle, ways, planned=True, made_on=found.texts)


def _decision(bundle: str | Path, options: OpenOptions) -> Decision | NoPlan:
    """Find the plan to follow: the stored one, one from a file, one for a memory limit, or none."""
    plan, limited = str(options.plan), options.memory is not None
    if limited and plan not in ("auto", "none"):
        raise InputError(f"--memory makes a plan: leave --plan {plan} out")
    chosen = _chosen(options)
    if plan == "none":
        return NoPlan("--plan none")
    if plan == "auto" and not limited and chosen:
        return NoPlan(f"{chosen} given")
    if chosen:
        other = "add --plan none to keep to --memory without one" if limited else "leave --plan out"
        raise InputError(f"a plan decides {chosen}: leave it out, or {other}")
    if limited:
        return _within(bundle, options)
    decision = _last(bundle, options) if plan == "auto" else _stored(bundle, options)
    if decision is None:
        return NoPlan("none was made for these models here")
    _check_context(decision, options)
    return decision


def _chosen(options: OpenOptions) -> str:
    """Return the plan's options that the user set; ``--draft none`` is not one."""
    given = {name: getattr(options, name) for name in _DECIDED}
    given = {name: value for name, value in given.items() if value != _DEFAULTS[name]}
    if options.draft == PLAIN:
        del given["draft"]
    flags = [_NAMED.get(name) or registry.flag(name, value) for name, value in given.items()]
    if "draft_load" in given and options.given_for_draft:
        own = [registry.flag(name, None, draft=True) for name in options.given_for_draft]
        flags[flags.index(_NAMED["draft_load"])] = ", ".join(own)
    return ", ".join(flags)


def _last(bundle: str | Path, options: OpenOptions) -> Decision | None:
    return remembered.recall(bundle, options.draft_model) if remembered.any_there() else None


def _stored(bundle: str | Path, options: OpenOptions) -> Decision:
    from edgedec.planning import decisions

    return decisions.load(Path(options.plan), bundle, options.draft_model)


def _within(bundle: str | Path, options: OpenOptions) -> Decision:
    """Make a plan that fits in memory; measures the models if that has not been done."""
    from edgedec.planning import decisions
    from edgedec.profiling.run import ProfileOptions, read_cached

    assert options.memory is not None
    memory = granting(options.memory)()
    decisions.check_memory(memory, bundle, options.draft_model)
    if read_cached(bundle, options.draft_model) is None:
        _log.warning("measuring what the models cost here, once; this takes a minute or so")
    decision = decisions.plan(
        bundle,
        _workload(options.max_context),
        memory=memory,
        options=ProfileOptions(draft_model=options.draft_model),
    )
    streams = decisions.streams(decision, bundle, options.draft_model)
    if streams:
        _log.warning(streams)
    return decision


def _check_context(decision: Decision, options: OpenOptions) -> None:
    """Refuse a context longer than the plan's memory limit holds."""
    if decision.memory is None:
        return
    most = decision.max_context
    if (options.max_context or 0) > most:
        raise InputError(
            f"--max-context {options.max_context}: the plan holds {most} tokens in the memory it"
            " was given: make one with `edgedec plan --max-context`, or --plan none"
        )


def _workload(max_context: int | None) -> Workload:
    """Return the usual workload, or one that fits in a shorter context."""
    usual = Workload()
    if max_context is None or max_context >= usual.tokens:
        return dataclasses.replace(usual, max_context=max_context)
    new = max(2, max_context // 3)
    return Workload(max(1, max_context - new), new, max_context=max_context)


class Opener:
    """Opener of the first way that works; when one fails, it goes on with the next.

    Args:
        bundle: as ``Pipeline.open`` takes it.
        ways: most wanted first.
        planned: whether a planner chose them; the user's own choice must load.
        made_on: the texts that the plan was made on, by name.
        no_plan: why there is no plan, in a few words.

    Attributes:
        notes: why earlier ways were given up, one line each; each was also logged once, as a
            warning of the logger ``edgedec``.

    """

    def __init__(
        self,
        bundle: str | Path,
        ways: Sequence[Named],
        *,
        planned: bool,
        made_on: str = "",
        no_plan: str = "",
    ) -> None:
        self.notes: list[str] = []
        self._bundle = bundle
        self._in_force = planned
        self._made_on = printable(made_on)
        self._no_plan = no_plan
        self._planned = planned
        self._ways: Iterator[Named] = iter(ways)
        self._name, self._options = next(self._ways)

    def open(self) -> Parts:
        """Open the current way; if a planned one cannot be loaded, open the next.

        Raises:
            EdgedecError: the requested way cannot be opened, or no way is left.

        """
        while True:
            try:
                parts = build.assemble(self._bundle, self._options)
            except FAILURES as error:
                if not self._planned:
                    raise
                self._give_way(error)
            else:
                parts.plan.update(self._plan_facts())
                return parts

    def _plan_facts(self) -> dict[str, str | None]:
        """Return the followed plan's short name and texts, or why there is none."""
        if self._in_force:
            return {"plan": self._name, "plan_made_on": self._made_on, "no_plan": None}
        return {"plan": None, "plan_made_on": None, "no_plan": self._no_plan}

    def reopen(self, parts: Parts, error: EdgedecError) -> Parts:
        """Close a pipeline that failed in the middle of a text, and open the next way.

        Raises:
            EdgedecError: ``error`` itself, when no way is left.

        """
        # A lost device may not even close; its memory is freed if possible.
        with suppress(EdgedecError):
            parts.close()
        self.notes += parts.notes
        self._give_way(error)
        # From here on the options differ from those that the user gave.
        self._planned = True
        return self.open()

    def _give_way(self, error: EdgedecError) -> None:
        following = next(self._ways, None)
        if following is None:
            raise error
        failed, (self._name, self._options) = self._name, following
        note = printable(f"{failed} failed ({one_line(str(error))}): going on with {self._name}")
        self.notes.append(note)
        _log.warning(note)
