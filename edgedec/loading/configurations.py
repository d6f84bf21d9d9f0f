"""Configurations in which to open a bundle, in order of preference.

The text does not depend on the configuration, except at near-ties of quantised arithmetic: the
target's tokens are drawn with the same noise at the same positions, whichever drafter runs and
wherever.
"""

from __future__ import annotations

from typing import Any

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.loading.options import OpenOptions
from edgedec.records.place import CPU
from edgedec.records.plan import SEQUENTIAL, Decision, Plan

# A configuration's name in messages, and the options that open it.
Configuration = tuple[str, OpenOptions]


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
