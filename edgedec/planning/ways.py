"""Ways to open a bundle, most wanted first.

The text does not depend on the way, near-ties of quantised arithmetic aside: the target's tokens
are drawn with the same noise at the same positions, whichever drafter runs and wherever.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.loading.build import OpenOptions
from edgedec.records.place import CPU
from edgedec.records.plan import SEQUENTIAL, Decision, Plan

# A way to decode: its name in messages, and the options that open it.
Named = tuple[str, OpenOptions]


def placed(options: OpenOptions, plan: Plan, context_limit: int | None) -> OpenOptions:
    """Return ``options`` with models where a plan puts them.

    If a rule's text depends on the drafts, or texts take turns, they are made sequentially.
    """
    target = plan.target
    together = acceptance.rule(options.accept or "coupling").seeds_text and options.parallel == 1
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
