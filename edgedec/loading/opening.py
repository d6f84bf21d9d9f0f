"""Opens a pair: finds its files, chooses where it runs, loads it, and falls back if that fails.

The text does not depend on the configuration that works, except at near-ties of quantised
arithmetic: the target's tokens are drawn with the same noise at the same positions, whichever
drafter runs and wherever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line, printable
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import (
    BundleError,
    EdgedecError,
    MemoryBudgetError,
    PassFailed,
    RuntimeUnavailable,
)
from edgedec.loading import build
from edgedec.loading.open_pair import OpenPair
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Models, Pair
from edgedec.records.place import CPU, Place
from edgedec.records.plan import SEQUENTIAL, Decision, Plan
from edgedec.runtimes import registry

_log = logging.getLogger("edgedec")
# Errors of a place that cannot be used, when loading or while decoding.
FAILURES = (RuntimeUnavailable, BundleError, PassFailed)


# A configuration's name in messages, and the options that open it.
Configuration = tuple[str, OpenOptions]


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The reason why no plan is followed, and the plan that is left aside, if any."""

    reason: str
    left: Decision | None = None


# Returns the plan to follow for models and options, or why there is none.
Planner = Callable[[Models, OpenOptions], Decision | NoPlan]


def configurations(bundle: str | Path, options: OpenOptions, planner: Planner) -> Configurations:
    """Return the ways to open a bundle: those of its plan, or ``options`` if there is none.

    Raises:
        InputError, BundleError, PlanError, MemoryBudgetError: see ``planner`` and ``Models.find``.

    """
    models = Models.find(bundle, options.draft)
    found = planner(models, options)
    if isinstance(found, NoPlan):
        return _without_plan(models, options, found)
    planned = planned_configurations(found, options)
    if not planned:
        reason = "--batch-invariant takes chains, and the plan drafts trees"
        return _without_plan(models, options, NoPlan(reason, found))
    return Configurations(models, planned, made_on=found.texts)


def _without_plan(models: Models, options: OpenOptions, why: NoPlan) -> Configurations:
    """Return the requested configuration, on the fastest device for the target, and fallbacks."""
    ways = unplanned_configurations(options)
    quickest = on_quickest(build.pair_of(models, options), options, why.left)
    if quickest is not options:
        ways.insert(0, (f"the target on {quickest.load.device}", quickest))
    return Configurations(models, ways, requested=options, no_plan=why.reason)


def placed(options: OpenOptions, plan: Plan, context_limit: int | None) -> OpenOptions:
    """Return ``options`` with models placed by a plan.

    The schedule is sequential if the rule's text depends on the drafts, or with ``parallel``.
    """
    target = plan.target
    together = acceptance.rule(options.accept or "coupling").seeds_text and options.parallel == 1
    return options.changed(
        threads=target.threads or None,
        cores=target.cores,
        providers=target.load_options().providers,
        device=target.load_options().device,
        weight_memory=target.weight_memory,
        format=target.format,
        drafter=plan.drafter,
        draft_length="auto" if plan.draft_length is None else plan.draft_length,
        draft_depth=plan.depth,
        draft_load=None if plan.draft is None else plan.draft.load_options(),
        draft_format=None if plan.draft is None else plan.draft.format,
        schedule=plan.schedule if together else SEQUENTIAL,
        context_limit=context_limit,
    )


def planned_configurations(decision: Decision, options: OpenOptions) -> list[Configuration]:
    """Return a decision's plan, then its fallbacks; all plain if the options ask for that."""
    plans = [decision.chosen.plan, *decision.fallbacks]
    if options.drafter == PLAIN:
        plans = list(dict.fromkeys(Plan(plan.target) for plan in plans))
    if options.load.batch_invariant:
        # Batch invariance is guaranteed for chains only, and these drafters draft trees.
        plans = [plan for plan in plans if not drafting.info(plan.drafter).branches]
    return [(plan.label, placed(options, plan, decision.max_context)) for plan in plans]


def unplanned_configurations(options: OpenOptions) -> list[Configuration]:
    """Return the requested configuration, one without a draft model, and plain on the CPU."""
    configurations = [("the requested configuration", options)]
    if options.load.own.get("rpc"):
        return configurations  # on this machine alone it would not fit
    # A drafter without a model is kept.
    alone: dict[str, Any] = {"draft": None, "draft_load": None, "draft_format": None}
    if drafting.info(options.drafter).needs_model or options.drafter == "auto":
        drafter = drafting.default(with_model=False)
        changed = options.changed(drafter=drafter, schedule=SEQUENTIAL, **alone)
        configurations.append(("drafting without a model", changed))
    load = options.load
    on_device = load.device is not None or load.own.get("gpu_layers") is not None
    plain = options.changed(
        drafter=PLAIN, draft_length="auto", schedule=SEQUENTIAL, **alone,
        providers=(), device=CPU if on_device else None, gpu_layers=None, cores=None,
    )  # fmt: skip
    return [*configurations, ("plain decoding on the processor", plain)]


def on_quickest(pair: Pair, options: OpenOptions, left: Decision | None) -> OpenOptions:
    """Return the options with the device that computes the target's rounds fastest.

    The choice depends on whether there is a draft model, but not on the drafter, so that plain
    decoding gives the same text.

    Args:
        pair: the models that these options load.
        options: unchanged if no other device is faster, with ``plan="none"``, and if the user
            places the target.
        left: a plan for this bundle that is not followed because the user set options that it
            decides; its device is used, as it is for plain decoding.

    Raises:
        BundleError, RuntimeUnavailable: the target is damaged, or cannot run here.

    """
    if options.plan == "none" or options.is_placed():
        return options
    if left is not None:
        place = left.chosen.plan.target
        own = registry.of_format(place.format).target_places
        device = next((name for name in (place.device, place.provider) if name in own), None)
    else:
        target = pair.target
        target.admit()
        device = registry.quickest(
            target.format,
            target.path,
            options.load.changed(batch_invariant=None),
            _draft_beside(pair),
        )
    return options if device is None else options.changed(device=device)


def _draft_beside(pair: Pair) -> Path | None:
    """Return the draft model's file, if the target's runtime can run it; None if it is damaged."""
    draft = pair.draft
    if draft is None or draft.format != pair.target.format:
        return None
    try:
        draft.admit()
    except EdgedecError:  # reported where it is loaded
        return None
    return draft.path


class Configurations:
    """Opens the first configuration that works; when one fails, it goes on with the next.

    Args:
        configurations: in order of preference.
        requested: options given by the user, which must load; None if a planner chose them.
        made_on: the texts that the plan was made on, by name.
        no_plan: why there is no plan, in a few words.

    Attributes:
        notes: why earlier configurations failed, one line each; each was also logged once, as a
            warning of the logger ``edgedec``.

    """

    def __init__(
        self,
        models: Models,
        configurations: Sequence[Configuration],
        *,
        requested: OpenOptions | None = None,
        made_on: str = "",
        no_plan: str = "",
    ) -> None:
        self.notes: list[str] = []
        self._models = models
        self._requested = requested
        self._in_force = requested is None
        self._made_on = printable(made_on)
        self._no_plan = no_plan
        (self._name, self._options), *self._left = configurations

    def open(self) -> OpenPair:
        """Open the current configuration, or the next one if it fails and was not requested.

        Raises:
            EdgedecError: the requested configuration cannot be opened, or none is left.

        """
        while True:
            try:
                opened = self._assembled()
            except FAILURES as error:
                if self._options is self._requested:
                    raise
                self._take_next(error)
            else:
                opened.facts.update(self._plan_facts())
                return opened

    def _assembled(self) -> OpenPair:
        """Open the current configuration, as a memory limit allows."""
        try:
            return build.assemble(self._models, self._options)
        except MemoryBudgetError:
            off, sparing = self._sparing()
            if not off:
                raise
        # Outside the handler, since the error holds the models that were loaded.
        opened = build.assemble(self._models, sparing)
        self._note(f"--memory holds the model only with {off}: going on so")
        return opened

    def _sparing(self) -> tuple[str, OpenOptions]:
        """Return what the user left open and takes less memory, in words, and options with it."""
        options, pair = self._options, build.pair_of(self._models, self._options)
        own = registry.of_format(pair.target.format).options
        off = {one.name: False for one in own if one.spares and one.name not in options.load.own}
        if options.memory is None:
            off = {}
        draft = options.draft_load or options.shared()
        if pair.draft is not None and pair.draft.format == pair.target.format:
            draft = draft.changed(**off | draft.own)
        words = ", ".join(f"--runtime-option {name}=off" for name in off)
        return words, options.changed(**off, draft_load=draft)

    @property
    def opens_again(self) -> bool:
        """True if the target is on other machines, whose servers may be started again."""
        return Place.of(self._options.format, self._options.load).elsewhere

    def _plan_facts(self) -> dict[str, str | None]:
        """Return the followed plan's name and texts, or why there is none."""
        if self._in_force:
            return {"plan": self._name, "plan_made_on": self._made_on, "no_plan": None}
        return {"plan": None, "plan_made_on": None, "no_plan": self._no_plan}

    def reopen(self, opened: OpenPair, error: EdgedecError) -> OpenPair:
        """Close a pipeline that failed while decoding, and open the next configuration.

        Raises:
            EdgedecError: ``error`` itself, if no configuration is left.

        """
        # A lost device may not even close; its memory is freed if possible.
        with suppress(EdgedecError):
            opened.close()
        self.notes += opened.notes
        if self.opens_again and not self._left:
            return self._connected_again(error)
        self._take_next(error)
        # A generation has begun, so any configuration that continues it is acceptable.
        self._requested = None
        return self.open()

    def _connected_again(self, error: EdgedecError) -> OpenPair:
        """Open the same configuration, on servers that may have been started again."""
        try:
            again = self.open()
        except FAILURES:
            raise error from None
        self._note("a server of --rpc was lost in a pass and is there again: the text goes on")
        return again

    def _take_next(self, error: EdgedecError) -> None:
        if not self._left:
            raise error
        failed, (self._name, self._options) = self._name, self._left.pop(0)
        self._note(f"{failed} failed ({one_line(str(error))}): going on with {self._name}")

    def _note(self, text: str) -> None:
        note = printable(text)
        self.notes.append(note)
        _log.warning(note)
