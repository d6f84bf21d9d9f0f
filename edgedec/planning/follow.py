"""Finds the plan to follow when a bundle is opened: a stored one, a file, or one for a limit."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path

from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError
from edgedec.loading.opening import NoPlan
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Models
from edgedec.memory.grant import granting
from edgedec.planning import remembered
from edgedec.records.plan import Decision
from edgedec.records.workload import Workload
from edgedec.runtimes import registry

_log = logging.getLogger("edgedec")
# A plan stays valid for up to a quarter more memory than it was made for, since the free memory
# that `--memory auto` grants always varies.
_AS_GOOD = 0.8
# Names in messages of options that the command line spells differently or lacks.
_NAMED = {"providers": "--provider", "draft_load": "draft_load", "cores": "cores"}


def plan_to_follow(models: Models, options: OpenOptions) -> Decision | NoPlan:
    """Return a plan: stored, from a file, or made to stream a large target; or why there is none.

    Raises:
        InputError: both a plan and an option that plans decide were given.
        BundleError, PlanError, MemoryBudgetError: see ``decisions`` and ``plan_files``.

    """
    plan, limited = str(options.plan), options.memory is not None
    if limited and plan not in ("auto", "none"):
        raise InputError(f"--memory makes a plan: leave --plan {plan} out")
    chosen = _chosen(options)
    if plan == "none":
        return NoPlan("--plan none")
    if plan == "auto" and not limited and chosen:
        return NoPlan(f"{chosen} given", None if options.is_placed() else remembered.recall(models))
    if chosen:
        other = "add --plan none to keep to --memory without one" if limited else "leave --plan out"
        raise InputError(f"a plan decides {chosen}: leave it out, or {other}")
    if limited:
        return _within(models, options)
    if plan != "auto":
        from edgedec.planning import plan_files

        decision = plan_files.load(Path(plan), models)
    elif (last := remembered.recall(models)) is not None:
        decision = last
    else:
        return NoPlan("none was made for these models here")
    _check_context(decision, options)
    return decision


def _chosen(options: OpenOptions) -> str:
    """Return the options set by the user that a plan decides, except ``--drafter none``."""
    given = options.planned()
    if options.drafter == PLAIN:
        del given["drafter"]
    flags = [_NAMED.get(name) or registry.flag(name, value) for name, value in given.items()]
    if "draft_load" in given and options.given_for_draft:
        own = [registry.flag(name, None, draft=True) for name in options.given_for_draft]
        flags[flags.index(_NAMED["draft_load"])] = ", ".join(own)
    return ", ".join(flags)


def _within(models: Models, options: OpenOptions) -> Decision | NoPlan:
    """Return a stored plan that fits in memory, or make one if the weights do not fit whole.

    A limit by itself costs no measurement. Weights that do not fit are read from the disk in every
    pass, and how many of them to keep in memory depends on measured times.
    """
    from edgedec.planning import decisions, streaming
    from edgedec.profiling.store import identity

    assert options.memory is not None
    memory = granting(options.memory)()
    decisions.check_memory(memory, models)
    now = identity(models)
    stored = (remembered.recall(models, now, limited=limited) for limited in (False, True))
    fitting = (one for one in stored if one and _fits(one, memory, options.max_context))
    decision = next(fitting, None)
    if decision is None and streaming.to_begin_with(models.sources, memory) is None:
        return NoPlan("none was made for this amount of memory")
    if decision is None:
        _log.warning(
            "the target's weights do not fit in this amount of memory: measuring, once, how many of"
            " them to keep in it takes some minutes"
        )
        decision = decisions.plan(models, _workload(options.max_context), memory=memory)
        # Kept whatever the trial met: else every start would measure again.
        remembered.remember(decision, now, limited=True)
        if decision.disturbed:
            _log.warning(
                "the machine was busy while this plan was measured (%s): edgedec plan, with the"
                " same --memory and --refresh, measures again",
                decision.disturbed,
            )
    streams = decisions.streams(decision, models)
    if streams:
        _log.warning(streams)
    return decision


def _fits(decision: Decision, memory: int, max_context: int | None) -> bool:
    """Return whether planning for this memory and context would give the same plan.

    The best plan within more memory is also the best within less, if it fits.
    """
    made_for = math.inf if decision.memory is None else decision.memory
    needed = min(made_for, decision.chosen.prediction.peak_bytes)
    enough = max_context is None or max_context <= decision.max_context
    return enough and needed <= memory <= made_for / _AS_GOOD


def _check_context(decision: Decision, options: OpenOptions) -> None:
    """Refuse a context that does not fit in the plan's memory limit."""
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
