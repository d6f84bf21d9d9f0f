"""The planner: chooses where models run, which drafter is used and how much it drafts.

It has no clock, files or randomness of its own. The same profile, workload, memory and trial always
give the same decision, in whatever order things were measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from edgedec.decoding import drafting
from edgedec.errors import MemoryBudgetError, PlanError
from edgedec.planning.contenders import (
    Trials,
    WeighedCandidate,
    best_first,
    choose,
    contenders,
)
from edgedec.planning.estimate import Forecast
from edgedec.planning.memory_fit import MemoryFit
from edgedec.planning.reasons import DecisionFacts, disturbed, reasons
from edgedec.profiling.together import fits_together
from edgedec.records.place import CPU, Place
from edgedec.records.plan import (
    OVERLAPPED,
    SCHEMA,
    SEQUENTIAL,
    Candidate,
    Decision,
    Plan,
    Prediction,
    Trial,
)
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload


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
        refused = _replays(draft)
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
        return Family(plans[:1], _replays(target))
    return Family(plans)


def _replays(measured: Measured) -> str:
    return f"{measured.name} is recurrent, and a rejected token would take another pass"


def _of(profile: Profile, role: str) -> list[Measured]:
    """Return everything measured for a role, in an order that does not depend on the profile's."""
    found = (measured for measured in profile.measured if measured.role == role)
    return sorted(found, key=lambda measured: (measured.place.label, measured.name))


def _unusable(measured: Measured) -> str:
    if measured.parity.usable:
        return ""
    reason = measured.parity.reason or "its results differ too much from the reference's"
    return f"the {measured.role} cannot be used at {measured.place.label}: {reason}"


# Runs plans in turns, the first one plain; the flag says whether all models stay loaded.
Run = Callable[[Sequence[Plan], bool], Trials]

_CPU_PROVIDER = "CPUExecutionProvider"


def decide(
    profile: Profile,
    workload: Workload,
    memory: int | None = None,
    run: Run | None = None,
    available: int | None = None,
) -> Decision:
    """Choose among all plans that the profile allows.

    Args:
        memory: most bytes that a plan may hold; None sets no limit.
        run: runs the plans that are best by formula. If none can be measured, plain decoding is
            chosen. None chooses by formula, as for a machine that is not at hand.
        available: bytes available on the machine, the limit if no memory is given.

    Raises:
        PlanError: there is no place where the target computes correctly.
        MemoryBudgetError: nothing fits; names the smallest memory that a plan fits in.

    """
    planner = _Planner(profile, workload, memory, available)
    usable, refused = planner.rank(run)
    profile = planner.profile
    plain_only = [w for w in usable if w.plan.plain]
    ran = [w for w in usable if w.candidate.measured] or (plain_only if run else usable)
    plain = min((w for w in ran if w.plan.plain), key=best_first)
    chosen = choose(ran)
    rivals = sorted((w for w in ran if not w.plan.plain), key=best_first)
    facts = DecisionFacts(
        profile, workload, planner.memory, chosen, plain, tuple(rivals), tuple(refused),
        planner.nothing_ran,
    )  # fmt: skip
    return Decision(
        schema=SCHEMA,
        machine=dict(sorted(profile.machine.items())),
        bundle=profile.bundle,
        versions=dict(sorted(profile.versions.items())),
        memory=memory,
        max_context=chosen.context,
        chosen=chosen.candidate,
        fallbacks=planner.fallbacks(usable, chosen),
        candidates=tuple(w.candidate for w in (*usable, *refused)),
        reasons=tuple(reasons(facts)),
        texts=profile.texts,
        busy=profile.busy,
        disturbed=disturbed(facts),
        models=profile.models,
    )


@dataclass(slots=True)
class _Planner:
    profile: Profile
    workload: Workload
    given: int | None
    available: int | None
    forecast: Forecast = field(init=False)
    memory: MemoryFit = field(init=False)
    nothing_ran: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.forecast = Forecast(self.profile, self.workload)
        self.memory = MemoryFit(self.profile, self.workload, self.given, self.available)

    def rank(self, run: Run | None) -> tuple[list[WeighedCandidate], list[WeighedCandidate]]:
        """Return usable plans, measured ones first and then by speed, and refused plans."""
        weighed = [self.weigh(family) for family in families(self.forecast)]
        refused = [w for w in weighed if w.candidate.refused]
        usable = [w for w in weighed if not w.candidate.refused]
        self.check(usable, sorted(refused, key=lambda w: w.plan.label))
        if run is not None:
            weighed = self.with_trial(usable, run)
            refused += [w for w in weighed if w.candidate.refused]
            usable = [w for w in weighed if not w.candidate.refused]
        # Formulas and measurements are not comparable.
        usable.sort(key=lambda w: (w.candidate.measured is None, best_first(w)))
        return usable, sorted(refused, key=lambda w: w.plan.label)

    def weigh(self, family: Family) -> WeighedCandidate:
        """Return the best plan of a family that fits in memory, by formula."""
        if family.refused:
            plan = family.plans[0]
            peak = self.memory.bytes_of(plan, self.memory.needed)
            nothing = Prediction(0.0, 0.0, peak, 0.0)
            return WeighedCandidate(Candidate(plan, nothing, family.refused), self.memory.needed)
        fit = self.memory.fit({plan: self.forecast.estimate(plan).rate for plan in family.plans})
        prediction = dataclasses.replace(self.forecast.predict(fit.plan), peak_bytes=fit.peak_bytes)
        candidate = Candidate(fit.plan, prediction, fit.refused)
        return WeighedCandidate(candidate, fit.context)

    def with_trial(self, usable: list[WeighedCandidate], run: Run) -> list[WeighedCandidate]:
        """Run the best plans; return all, with their measured speeds. One that fails is refused.

        If no plain one is left, those that failed stay, since something has to decode.
        """
        plans = [one.plan for one in contenders(usable)]
        head = next(iter(self.profile.of("head")), None)
        ran = run(plans, fits_together(plans, self.memory.limit, self.profile.at, head))
        self.nothing_ran = ran.note
        shares = [one for one in (self.profile.busy, ran.busy) if one is not None]
        self.profile = dataclasses.replace(self.profile, busy=max(shares, default=None))
        every = [_with_result(one, ran.found.get(one.plan)) for one in usable]
        if any(one.plan.plain and not one.candidate.refused for one in every):
            return every
        return [old if old.plan.plain else new for old, new in zip(usable, every, strict=True)]

    def check(self, usable: list[WeighedCandidate], refused: list[WeighedCandidate]) -> None:
        """Raise an error if no plan for plain decoding is usable."""
        if any(w.plan.plain for w in usable):
            return
        possible = [m.place for m in self.profile.of("target")]
        if not possible:
            why = "; ".join(w.candidate.refused for w in refused if w.plan.plain)
            raise PlanError(
                f"no place for the target is usable ({why or 'none was measured'}): profile again"
            )
        trained = max(model.max_context for model in self.profile.of("target"))
        if self.memory.needed > trained:
            raise MemoryBudgetError(
                f"a context of {self.memory.needed} tokens: the target was trained for {trained}:"
                " plan for shorter texts"
            )
        plans = [Plan(place) for place in possible]
        least = min(plans, key=lambda plan: (self.memory.least(plan), plan.label))
        enough = math.ceil(self.memory.least(least) / 1e6)
        advice = f"give --memory {enough}MB or more"
        if self.given is None:
            advice = f"free {enough} MB, or take a smaller model"
        raise MemoryBudgetError(
            f"{self.memory.amount}, too little for any plan: the smallest possible is {least.label}"
            f" with a context of {self.memory.needed} tokens: {advice}"
        )

    def fallbacks(
        self, usable: list[WeighedCandidate], chosen: WeighedCandidate
    ) -> tuple[Plan, ...]:
        """Return the plans to use when a place of the chosen one fails; the last is plain.

        Plans are compared by formula, since not all of them ran.
        """
        fitting = [w for w in usable if self.memory.holds(w.plan, chosen.context)]
        plan, found = chosen.plan, []
        for target, draft in ((None, plan.draft), (plan.target, None), (plan.target, plan.draft)):
            left = [w for w in fitting if not _uses(w.plan, target, draft)]
            if (target or draft) and any(w.plan.plain for w in left):
                found.append(min(left, key=lambda w: (-w.predicted, w.plan.label)).plan)
        plain = [w for w in fitting if w.plan.plain and w.plan != plan]
        # The place where the target failed is tried last.
        elsewhere = [w for w in plain if not _uses(w.plan, plan.target, plan.draft)] or plain
        last = [min(elsewhere, key=_safest_first).plan] if elsewhere else []
        rest = [one for one in dict.fromkeys(found) if one != plan and one not in last]
        return (*rest, *last)


def _with_result(weighed: WeighedCandidate, found: Trial | str | None) -> WeighedCandidate:
    if found is None:
        return weighed
    if isinstance(found, str):
        candidate = dataclasses.replace(weighed.candidate, refused=found)
    else:
        candidate = dataclasses.replace(weighed.candidate, measured=found)
    return dataclasses.replace(weighed, candidate=candidate)


def _safest_first(weighed: WeighedCandidate) -> tuple[bool, bool, float, str]:
    """Return a sort key that puts the processor without pinned cores first, as always available."""
    place = weighed.plan.target
    return not _processor(place), place.cores is not None, -weighed.predicted, place.label


def _uses(plan: Plan, target: Place | None, draft: Place | None) -> bool:
    """Return whether a plan needs one of two places that failed, for its role or on its device."""
    if plan.target == target or (draft is not None and plan.draft == draft):
        return True
    gone = {(p.device, p.provider) for p in (target, draft) if p is not None and not _processor(p)}
    used = {(p.device, p.provider) for p in (plan.target, plan.draft) if p is not None}
    return bool(gone & used)


def _processor(place: Place) -> bool:
    return place.device == CPU and place.provider in (None, _CPU_PROVIDER)
