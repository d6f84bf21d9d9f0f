"""Estimates the memory of a trial that holds the models of all its plans at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedec.decoding import drafting
from edgedec.profiling.children import DRAFT, TARGET
from edgedec.records.place import Place
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured


def fits_together(
    plans: Sequence[Plan],
    limit: int | None,
    at: Callable[[str, Place], Measured],
    head: Measured | None = None,
) -> bool:
    """Return whether one process may hold the models of all plans at once.

    Args:
        limit: most bytes that the process may hold; None sets no limit.
        at: gives the measurements of a role at a place.
        head: the target's head, as measured anywhere; None without one.

    """
    return limit is None or bytes_together(plans, at, head) <= limit


def bytes_together(
    plans: Sequence[Plan], at: Callable[[str, Place], Measured], head: Measured | None = None
) -> int:
    """Return the memory of a process that holds the models of all plans at once, in bytes.

    A target is loaded with other options for drafters that need branches, so it may count twice.
    """
    loaded = {(TARGET, p.target, drafting.info(p.drafter).needs_branches) for p in plans}
    loaded |= {(DRAFT, plan.draft, False) for plan in plans if plan.draft is not None}
    models = [at(role, place) for role, place, _ in loaded]
    if head is not None:
        models += [head] * len({p.target for p in plans if drafting.info(p.drafter).needs_head})
    return sum(map(_held, models)) + max(one.process_bytes for one in models)


def _held(one: Measured) -> int:
    if one.place.elsewhere:
        return one.rss_bytes
    return max(one.rss_bytes, one.place.weight_memory or one.weight_bytes)
