"""Builds an engine from a plan and open sessions, for decoding, trials and benches alike."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from edgedec._support.parts import part
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import CostCurve, DraftPolicy, Fixed, MeasuredCost, calibrate
from edgedec.decoding.policy.cost import WIDTHS
from edgedec.decoding.session import Session
from edgedec.errors import InputError
from edgedec.hardware.clock import Clock, WallClock, cores_of
from edgedec.hardware.pinning import PinnedEngine, pinned
from edgedec.memory.account import AUTO_LENGTH
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Plan, check_schedule

# Modules that build the engines of other schedules, by name: each can be left out.
_BUILDERS = {OVERLAPPED: "edgedec.overlap.schedule"}


def build_engine(
    plan: Plan,
    target: Session,
    parts: DrafterParts,
    clock: Clock,
    *,
    policy: DraftPolicy | None = None,
    rule: AcceptanceRule | None = None,
    on_failure: Callable[[BaseException], object] | None = None,
) -> Engine:
    """Build the engine that a plan describes; ``engine.drafter.close()`` ends its threads.

    Args:
        plan: drafter, draft length and schedule; under the wall clock, threads stay on its cores.
        target: the session that scores drafts.
        parts: what the drafter is built from, such as the draft's session.
        clock: the wall clock, or a test's.
        policy: how much to draft; None is the plan's policy, with pass times measured now.
        rule: the acceptance rule; None is the Gumbel coupling.
        on_failure: as for ``LookaheadDrafter``; None is its default.

    Raises:
        InputError: no such schedule or drafter, or the schedule does not support the drafter or the
            rule.
        RuntimeUnavailable: this process may not use the plan's cores.

    """
    _check_schedule(plan)
    policy = policy or _measured_policy(plan, target, parts, clock)
    rule = rule or acceptance.rule()
    if plan.schedule != SEQUENTIAL:
        build = part(_BUILDERS[plan.schedule], f"the schedule {plan.schedule}").build
        made: Engine = build(plan, target, parts, policy, rule, clock, on_failure)
        return made
    cores = cores_of(plan.target, clock)
    drafter = drafting.create(plan.drafter, parts)
    if cores is None:
        return Engine(target, drafter, policy, rule, clock.now)
    return PinnedEngine(target, drafter, policy, rule, clock.now, cores=cores)


def parallel_engine(engine: Engine, plan: Plan, parts: DrafterParts) -> Engine:
    """Return an engine that takes turns with another and shares its pool of target sessions.

    Args:
        plan: the plan of both, which must be sequential.
        parts: what this engine's own drafter is built from.

    """
    policy = copy.deepcopy(engine.policy)
    made = build_engine(plan, engine.target, parts, WallClock(), policy=policy, rule=engine.rule)
    made.pool = engine.pool
    return made


def _measured_policy(plan: Plan, target: Session, parts: DrafterParts, clock: Clock) -> DraftPolicy:
    """Return a plan's draft policy, after measuring the pass times that it needs."""

    def measured(session: Session, place: Place | None, widths: Sequence[int]) -> CostCurve:
        with pinned(cores_of(place, clock)):
            return calibrate(session, widths, clock=clock.now)

    if plan.plain or plan.draft_length == 0:
        return Fixed(0)
    if plan.draft_length is not None:
        # A generation that drafts in every round has no single-row pass to compare with.
        lone_row_s = measured(target, plan.target, (1,)).at(1)
        return Fixed(plan.draft_length, plan.depth, lone_row_s)
    draft_s = None if parts.draft is None else measured(parts.draft, plan.draft, (1,)).at(1)
    most = min(parts.rejected or AUTO_LENGTH, AUTO_LENGTH)
    return MeasuredCost(measured(target, plan.target, WIDTHS), draft_s, most)


def _check_schedule(plan: Plan) -> None:
    check_schedule(plan.schedule)
    if plan.schedule == OVERLAPPED and not drafting.info(plan.drafter).overlaps:
        able = (name for name in drafting.planned() if drafting.info(name).overlaps)
        raise InputError(
            f"the drafter {plan.drafter} does not draft while the target verifies: expected"
            f" {' or '.join(able)}, or the sequential schedule"
        )
