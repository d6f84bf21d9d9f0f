"""Builds the engine of the overlapped schedule, whose draft model has a thread of its own."""

from __future__ import annotations

from collections.abc import Callable

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import log_failure
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.session import Session
from edgedec.hardware.clock import Clock, cores_of
from edgedec.overlap.engine import LookaheadDrafter, OverlappedEngine
from edgedec.overlap.lookahead import Lookahead
from edgedec.records.plan import Plan


def build(
    plan: Plan,
    target: Session,
    parts: DrafterParts,
    policy: DraftPolicy,
    rule: AcceptanceRule,
    clock: Clock,
    on_failure: Callable[[BaseException], object] | None,
) -> OverlappedEngine:
    """Return the engine of a plan; see ``edgedec.loading.engine.build_engine``."""
    lookup = drafting.before_model(plan.drafter, parts)
    ahead = LookaheadDrafter(
        Lookahead(parts, clock, cores=cores_of(plan.draft, clock)),
        clock,
        name=plan.drafter,
        lookup=lookup,
        on_failure=on_failure or log_failure,
    )
    apart = plan.draft is None or plan.target.apart_from(plan.draft)
    cores = cores_of(plan.target, clock)
    return OverlappedEngine(target, ahead, policy, rule, clock, cores=cores, apart=apart)
