"""Opens a bundle in the first configuration that works; when one fails, the next takes over."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.fields import one_line, printable
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
from edgedec.loading.sources import Pair
from edgedec.memory.grant import granting
from edgedec.planning import remembered
from edgedec.planning.configurations import (
    Configuration,
    planned_configurations,
    unplanned_configurations,
)
from edgedec.planning.quickest import is_placed, on_quickest
from edgedec.records.plan import Decision
from edgedec.records.workload import Workload
from edgedec.runtimes import registry

_log = logging.getLogger("edgedec")
# Options that a plan decides; where the user sets one, no plan is made.
_DECIDED = (
    "draft", "draft_length", "draft_load", "format", "threads", "batch_threads", "providers",
    "device", "gpu_layers", "cores", "schedule", "weight_memory",
)  # fmt: skip
# Names in messages of options that the command line spells differently or lacks.
_NAMED = {"providers": "--provider", "draft_load": "draft_load", "cores": "cores"}
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(OpenOptions)}
# Errors of a place that cannot be used, when loading or while decoding.
FAILURES = (RuntimeUnavailable, BundleError, PassFailed)


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The reason why no plan is followed, and the plan that is left aside, if any."""

    reason: str
    left: Decision | None = None


def opener(bundle: str | Path, options: OpenOptions) -> Opener:
    """Return an opener that follows the bundle's plan, or ``options`` if there is none.

    Raises:
        InputError: both a plan and an option that plans decide were given.
        BundleError, PlanError, MemoryBudgetError: see ``edgedec.planning.decisions``.

    """
    found = _decision(bundle, options)
    if isinstance(found, NoPlan):
        return _without_plan(bundle, options, found)
    configurations = planned_configurations(found, options)
    if not configurations:
        reason = "--batch-invariant takes chains, and the plan drafts trees"
        return _without_plan(bundle, options, NoPlan(reason, found))
    return Opener(bundle, configurations, made_on=found.texts)


def _without_plan(bundle: str | Path, options: OpenOptions, why: NoPlan) -> Opener:
    """Return an opener of the requested configuration, on the fastest device for the target."""
    configurations = unplanned_configurations(options)
    pair = build.find_pair(bundle, options)
    quickest = on_quickest(pair, options, why.left)
    if quickest is not options:
        configurations.insert(0, (f"the target on {quickest.device}", quickest))
    return Opener(bundle, configurations, requested=options, no_plan=why.reason, pair=pair)


def _decision(bundle: str | Path, options: OpenOptions) -> Decision | NoPlan:
    """Find the plan to follow: the stored one, one from a file, one for a memory limit, or none."""
    plan, limited = str(options.plan), options.memory is not None
    if limited and plan not in ("auto", "none"):
        raise InputError(f"--memory makes a plan: leave --plan {plan} out")
    chosen = _chosen(options)
    if plan == "none":
        return NoPlan("--plan none")
    if plan == "auto" and not limited and chosen:
        return NoPlan(f"{chosen} given", None if is_placed(options) else _last(bundle, options))
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
    """Return the options set by the user that a plan decides, except ``--draft none``."""
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
    """Opens the first configuration that works; when one fails, it goes on with the next.

    Args:
        bundle: as ``Pipeline.open`` takes it.
        configurations: in order of preference.
        requested: options given by the user, which must load; None if a planner chose them.
        made_on: the texts that the plan was made on, by name.
        no_plan: why there is no plan, in a few words.
        pair: the models of the first configuration, if they have been found.

    Attributes:
        notes: why earlier configurations failed, one line each; each was also logged once, as a
            warning of the logger ``edgedec``.

    """

    def __init__(
        self,
        bundle: str | Path,
        configurations: Sequence[Configuration],
        *,
        requested: OpenOptions | None = None,
        made_on: str = "",
        no_plan: str = "",
        pair: Pair | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._bundle = bundle
        self._requested = requested
        self._in_force = requested is None
        self._made_on = printable(made_on)
        self._no_plan = no_plan
        self._pair = pair
        self._configurations: Iterator[Configuration] = iter(configurations)
        self._name, self._options = next(self._configurations)

    def open(self) -> Parts:
        """Open the current configuration, or the next one if it fails and was not requested.

        Raises:
            EdgedecError: the requested configuration cannot be opened, or none is left.

        """
        while True:
            pair, self._pair = self._pair, None
            try:
                parts = build.assemble(self._bundle, self._options, pair)
            except FAILURES as error:
                if self._options is self._requested:
                    raise
                self._take_next(error)
            else:
                parts.plan.update(self._plan_facts())
                return parts

    def _plan_facts(self) -> dict[str, str | None]:
        """Return the followed plan's name and texts, or why there is none."""
        if self._in_force:
            return {"plan": self._name, "plan_made_on": self._made_on, "no_plan": None}
        return {"plan": None, "plan_made_on": None, "no_plan": self._no_plan}

    def reopen(self, parts: Parts, error: EdgedecError) -> Parts:
        """Close a pipeline that failed while decoding, and open the next configuration.

        Raises:
            EdgedecError: ``error`` itself, if no configuration is left.

        """
        # A lost device may not even close; its memory is freed if possible.
        with suppress(EdgedecError):
            parts.close()
        self.notes += parts.notes
        self._take_next(error)
        # A generation has begun, so any configuration that continues it is acceptable.
        self._requested = None
        return self.open()

    def _take_next(self, error: EdgedecError) -> None:
        following = next(self._configurations, None)
        if following is None:
            raise error
        failed, (self._name, self._options) = self._name, following
        note = printable(f"{failed} failed ({one_line(str(error))}): going on with {self._name}")
        self.notes.append(note)
        _log.warning(note)
