"""From sessions to an engine: one thread after the other, or a draft that thinks ahead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.session import Session
from edgedec.errors import InputError
from edgedec.hardware.pinning import PinnedEngine
from edgedec.overlap import AheadDrafter, OverlappedEngine
from edgedec.overlap.clock import WallClock
from edgedec.overlap.lookahead import Ahead
from edgedec.records.load import LoadOptions
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What an engine is made of.

    Attributes:
        target: its session.
        policy, rule: as the engine's.
        drafter: a drafter's name.
        parts: what it is built from.
        target_load, draft_load: how the models were put on their devices.

    """

    target: Session
    policy: DraftPolicy
    rule: AcceptanceRule
    drafter: str
    parts: DrafterParts
    target_load: LoadOptions
    draft_load: LoadOptions


def engine(schedule: str, of: Ingredients, stack: ExitStack) -> Engine:
    """An engine of a schedule; what has to end with it is put on the stack.

    Raises:
        InputError: no such schedule, or the drafter or the rule does not go with it.

    """
    if schedule not in _SCHEDULES:
        raise InputError(f"no schedule {schedule!r}: expected one of {', '.join(_SCHEDULES)}")
    return _SCHEDULES[schedule](of, stack)


def _sequential(of: Ingredients, stack: ExitStack) -> Engine:
    parts = of.parts
    drafter = drafting.create(
        of.drafter,
        vocab_size=parts.vocab_size,
        draft=parts.draft,
        branches=parts.branches,
        draft_branches=parts.draft_branches,
        translation=parts.translation,
    )
    if of.target_load.cores is None:
        return Engine(of.target, drafter, of.policy, of.rule)
    return PinnedEngine(of.target, drafter, of.policy, of.rule, cores=of.target_load.cores)


def _overlapped(of: Ingredients, stack: ExitStack) -> Engine:
    if of.drafter not in ("model", "hybrid"):
        raise InputError(
            f"the drafter {of.drafter} does not draft while the target verifies: expected model"
            " or hybrid, or the sequential schedule"
        )
    clock = WallClock()
    ahead = Ahead(of.parts, clock, cores=of.draft_load.cores)
    stack.callback(ahead.close)
    lookup = None
    if of.drafter == "hybrid":
        lookup = LookupDrafter(of.parts.vocab_size, rivals=("model",))
    return OverlappedEngine(
        of.target,
        AheadDrafter(ahead, clock, lookup=lookup),
        of.policy,
        of.rule,
        clock,
        cores=of.target_load.cores,
        apart=_apart(of.target_load, of.draft_load),
    )


def _apart(target: LoadOptions, draft: LoadOptions) -> bool:
    """Whether two models share neither cores nor a device."""
    devices = [(load.device, tuple(load.providers)) for load in (target, draft)]
    if devices[0] != devices[1]:
        return True
    if target.cores is None or draft.cores is None:
        return False
    return not set(target.cores) & set(draft.cores)


_SCHEDULES: dict[str, Callable[[Ingredients, ExitStack], Engine]] = {
    SEQUENTIAL: _sequential,
    OVERLAPPED: _overlapped,
}
