"""All plans that a profile allows, in families that share places and drafter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgedec.decoding import drafting
from edgedec.errors import RuntimeUnavailable
from edgedec.planning.estimate import Forecast
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, Plan
from edgedec.records.profile import NOT_AT_ONCE, Measured, Profile


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
    """Yield all families in a fixed order, those with unusable places included.

    A drafter from another package that fails on the profile's texts is refused.
    """
    for family in _families(forecast):
        try:
            for plan in () if family.refused else family.plans:
                forecast.estimate(plan)
        except RuntimeUnavailable as error:
            yield Family(family.plans[:1], str(error))
        else:
            yield family


def _families(forecast: Forecast) -> Iterator[Family]:
    profile = forecast.profile
    drafts = _of(profile, "draft")
    for target in _of(profile, "target"):
        place = target.place
        yield Family((Plan(place),), _unusable(target))
        if not target.parity.usable:
            continue
        for drafter in _drafters(target, with_model=False):
            yield from _sized(target, drafter, None)
        if not forecast.chances:
            continue
        for draft in drafts:
            yield from _with_model(forecast, target, draft)


def _with_model(forecast: Forecast, target: Measured, draft: Measured) -> Iterator[Family]:
    refused = _unusable(draft)
    if not refused and not draft.rolls_back:
        refused = f"{draft.name} is recurrent and cannot take back a rejected token"
    if refused:
        any_of_them = next(_drafters(target, with_model=True))
        yield Family((Plan(target.place, draft.place, any_of_them, 1),), refused)
        return
    for drafter in _drafters(target, with_model=True):
        info = drafting.info(drafter)
        if info.estimated_by == "ranks":
            yield from _best_tree(forecast, target, draft, drafter)
        yield from _sized(target, drafter, draft.place)
        if not info.overlaps or not target.place.apart_from(draft.place):
            continue
        if forecast.profile.at_once(target.place, draft.place) is None:
            ahead = Plan(target.place, draft.place, drafter, 1, schedule=OVERLAPPED)
            yield Family((ahead,), NOT_AT_ONCE)
            continue
        yield from _sized(target, drafter, draft.place, OVERLAPPED)


def _drafters(target: Measured, *, with_model: bool) -> Iterator[str]:
    for name in drafting.planned():
        info = drafting.info(name)
        if info.needs_model == with_model and (target.tree or not info.needs_branches):
            yield name


def _best_tree(
    forecast: Forecast, target: Measured, draft: Measured, drafter: str
) -> Iterator[Family]:
    size = forecast.best_tree(Plan(target.place, draft.place, drafter, None))
    if size is not None:
        plan = Plan(target.place, draft.place, drafter, size.nodes, size.depth)
        yield _allowed(target, (plan,))


def _sized(
    target: Measured, drafter: str, draft: Place | None, schedule: str = SEQUENTIAL
) -> Iterator[Family]:
    """Yield one family of fixed lengths, if there are any, and one that decides each round."""
    info = drafting.info(drafter)
    lengths = (target.tree and info.tree_lengths) or info.lengths
    fixed = tuple(
        Plan(target.place, draft, drafter, length, schedule=schedule) for length in lengths
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
