"""All plans that a profile allows, in families that share places and drafter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgedec.decoding import drafting
from edgedec.planning.estimate import Forecast
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Plan
from edgedec.records.profile import Measured, Profile


@dataclass(frozen=True, slots=True)
class Family:
    """Plans that differ only in how much they draft.

    Attributes:
        plans: at least one, shortest drafts first.
        refused: why none of them can be used; empty if they can.

    """

    plans: tuple[Plan, ...]
    refused: str = ""


def families(forecast: Forecast) -> Iterator[Family]:
    """Yield all families in a fixed order, those with unusable places included."""
    profile = forecast.profile
    drafts = _of(profile, "draft")
    for target in _of(profile, "target"):
        yield Family((Plan(target.place),), _unusable(target))
        if not target.parity.usable:
            continue
        for drafter in _drafters(forecast, target, with_model=False):
            yield from _sized(target, drafter, None)
        for draft in drafts:
            yield from _with_model(forecast, target, draft)


def _with_model(forecast: Forecast, target: Measured, draft: Measured) -> Iterator[Family]:
    refused = _unusable(draft)
    if not refused and not draft.rolls_back:
        refused = f"{draft.name} is recurrent and cannot take back a rejected token"
    for drafter in _drafters(forecast, target, with_model=True):
        if refused:
            yield Family((Plan(target.place, draft.place, drafter, 1),), refused)
            return
        yield from _sized(target, drafter, draft.place)
        if drafting.info(drafter).overlaps and target.place.apart_from(draft.place):
            yield from _sized(target, drafter, draft.place, OVERLAPPED)


def _drafters(forecast: Forecast, target: Measured, *, with_model: bool) -> Iterator[str]:
    for name in drafting.planned():
        info = drafting.info(name)
        usable = (target.tree or not info.needs_branches) and forecast.knows(name)
        if info.needs_head and forecast.profile.head_beside(target.place) is None:
            continue
        if info.needs_model == with_model and usable:
            yield name


def _sized(
    target: Measured, drafter: str, draft: Place | None, schedule: str = SEQUENTIAL
) -> Iterator[Family]:
    """Yield one family of fixed lengths, if chains have any, and one that decides each round."""
    info = drafting.info(drafter)
    fixed = tuple(
        Plan(target.place, draft, drafter, length, schedule=schedule)
        for length in (() if info.branches else info.lengths)
    )
    if fixed:
        yield _allowed(target, fixed)
    yield _allowed(target, (Plan(target.place, draft, drafter, None, schedule=schedule),))


def _allowed(target: Measured, plans: tuple[Plan, ...]) -> Family:
    if not target.rolls_back:
        return Family(
            plans[:1], f"{target.name} is recurrent and cannot take back a rejected token"
        )
    return Family(plans)


def _of(profile: Profile, role: str) -> list[Measured]:
    """Return everything measured for a role, in an order that does not depend on the profile's."""
    found = (measured for measured in profile.measured if measured.role == role)
    return sorted(found, key=lambda measured: (measured.place.label, measured.name))


def _unusable(measured: Measured) -> str:
    if measured.parity.usable:
        return ""
    reason = measured.parity.reason or "its results differ too much from the reference's"
    return f"the {measured.role} cannot be used at {measured.place.label}: {reason}"
