"""The planner: chooses where models run, which drafter is used and how much it drafts.

It is pure: no clock, no files, no randomness. The same profile, workload and memory always give the
same decision, in whatever order things were measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from edgedec.errors import MemoryBudgetError, PlanError, RuntimeUnavailable
from edgedec.planning.candidates import Family, families
from edgedec.planning.estimate import Estimate, Forecast
from edgedec.planning.memory_fit import MemoryFit, drafted_at_most
from edgedec.planning.reasons import Findings, disturbed, reasons
from edgedec.planning.spread import WeighedCandidate, interval, with_texts
from edgedec.records.place import CPU, Place
from edgedec.records.plan import SCHEMA, Candidate, Decision, Plan, Prediction
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload

Predict = Callable[[Profile, Plan, Workload], Prediction]

# Replays are slow. Plans are replayed in the order of their estimates, until the best replay beats
# every remaining estimate; the best plan of each drafter is replayed as well, since the formula may
# misjudge a whole drafter.
_FEWEST_REPLAYS, _MOST_REPLAYS = 12, 32
# A length decided each round adapts to the text, down to plain decoding where drafts fail; a fixed
# length must be faster by more than this factor.
_AUTO_IS_WORTH = 0.97
_CPU_PROVIDER = "CPUExecutionProvider"
# Relative error assumed for a measurement on a busy machine, whatever its quartiles; medians are
# more certain than quartiles, however far apart those are.
_UNSTEADY = 0.1


def decide(
    profile: Profile,
    workload: Workload,
    memory: int | None = None,
    predict: Predict | None = None,
    available: int | None = None,
) -> Decision:
    """Choose among all plans that the profile allows.

    Args:
        profile: what was measured.
        workload: what is to be decoded.
        memory: most bytes that a plan may hold; None sets no limit.
        predict: predicts a plan's speed more precisely, such as by a replay of the real loop; None
            uses the formula.
        available: bytes available on the machine, the limit if no memory is given.

    Raises:
        PlanError: there is no place where the target computes correctly.
        MemoryBudgetError: nothing fits; names the smallest memory that a plan fits in.

    """
    planner = _Planner(profile, workload, memory, available)
    usable, looked, refused = planner.rank(predict)
    plain = min((w for w in looked if w.plan.plain), key=_best_first)
    chosen = choose(looked)
    rivals = sorted((w for w in looked if not w.plan.plain), key=_best_first)
    found = interval(chosen, looked)
    findings = Findings(
        profile, workload, planner.memory, chosen, plain, tuple(rivals), tuple(refused), found
    )
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
        reasons=tuple(reasons(findings)),
        interval=found,
        texts=profile.texts,
        busy=profile.busy,
        disturbed=disturbed(findings),
        models=profile.models,
    )


def choose(usable: Iterable[WeighedCandidate]) -> WeighedCandidate:
    """Return the fastest plan; one that drafts must beat plain decoding by its margin.

    Args:
        usable: plans, at least one of them plain.

    """
    ordered = sorted(usable, key=_best_first)
    plain = next(w for w in ordered if w.plan.plain)
    ahead = [w for w in ordered if not w.plan.plain and w.rate > plain.rate * (1 + w.margin)]
    if not ahead:
        return plain
    auto = (w for w in ahead if w.plan.draft_length is None)
    return next((w for w in auto if w.rate >= _AUTO_IS_WORTH * ahead[0].rate), ahead[0])


@dataclass(slots=True)
class _Planner:
    profile: Profile
    workload: Workload
    given: int | None
    available: int | None
    forecast: Forecast = field(init=False)
    memory: MemoryFit = field(init=False)

    def __post_init__(self) -> None:
        self.forecast = Forecast(self.profile, self.workload)
        self.memory = MemoryFit(self.profile, self.workload, self.given, self.available)

    def rank(
        self, predict: Predict | None
    ) -> tuple[list[WeighedCandidate], list[WeighedCandidate], list[WeighedCandidate]]:
        """Return usable plans, best first; those to choose among; and refused plans."""
        weighed = [self.weigh(family) for family in families(self.forecast)]
        refused = sorted((w for w in weighed if w.candidate.refused), key=lambda w: w.plan.label)
        usable = looked = [w for w in weighed if not w.candidate.refused]
        self.check(usable, refused)
        if predict is not None:
            seen, looked = self.look_closer(usable, predict)
            refused += [w for w in seen if w.candidate.refused]
            usable = [w for w in seen if not w.candidate.refused]
            looked = [w for w in looked if not w.candidate.refused]
        # Formulas and replays are not comparable, so replayed plans come first.
        usable = sorted(usable, key=lambda w: (not w.candidate.replayed, _best_first(w)))
        return usable, looked, refused

    def weigh(self, family: Family) -> WeighedCandidate:
        """Return the best plan of a family that fits in memory, by formula."""
        if family.refused:
            plan = family.plans[0]
            peak = self.memory.bytes_of(plan, self.memory.needed)
            nothing = Prediction(0.0, 0.0, peak, 0.0)
            refused = Candidate(plan, nothing, family.refused, replayed=False)
            return WeighedCandidate(refused, self.memory.needed)
        estimates = {plan: self.forecast.estimate(plan) for plan in family.plans}
        fit = self.memory.fit({plan: found.rate for plan, found in estimates.items()})
        plan = fit.plan
        prediction = dataclasses.replace(self.forecast.predict(plan), peak_bytes=fit.peak_bytes)
        candidate = Candidate(plan, prediction, fit.refused, replayed=False)
        estimate = estimates[plan]
        measured = self._measured(plan, estimate)
        uncertainty = math.hypot(measured, estimate.error)
        return WeighedCandidate(candidate, fit.context, estimate, uncertainty, measured)

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

    def look_closer(
        self, usable: list[WeighedCandidate], predict: Predict
    ) -> tuple[list[WeighedCandidate], list[WeighedCandidate]]:
        """Replay the best plans and all plain ones; return all plans, then the replayed ones."""
        ordered = sorted(usable, key=_best_first)
        looked: dict[Plan, WeighedCandidate] = {}
        kinds: dict[tuple[str, ...], WeighedCandidate] = {}
        for w in ordered:
            place = w.plan.target.label if w.plan.plain else ""
            kinds.setdefault((w.plan.drafter, w.plan.schedule, place), w)
        for w in (*kinds.values(), *ordered):
            best = max((seen.rate for seen in looked.values()), default=0.0)
            enough = len(looked) >= _FEWEST_REPLAYS and best >= w.rate
            if len(looked) >= len(kinds) and (enough or len(looked) >= _MOST_REPLAYS):
                break
            if w.plan not in looked:
                looked[w.plan] = self._replayed(w, predict)
        return [looked.get(w.plan, w) for w in usable], list(looked.values())

    def _replayed(self, weighed: WeighedCandidate, predict: Predict) -> WeighedCandidate:
        workload = dataclasses.replace(self.workload, max_context=weighed.context)
        known = weighed.candidate.prediction
        try:
            found = predict(self.profile, weighed.plan, workload)
        except RuntimeUnavailable as error:  # a drafter from another package failed
            nothing = Prediction(0.0, 0.0, known.peak_bytes, 0.0)
            refused = Candidate(weighed.plan, nothing, str(error), replayed=False)
            return dataclasses.replace(weighed, candidate=refused)
        candidate = Candidate(weighed.plan, dataclasses.replace(found, peak_bytes=known.peak_bytes))
        return with_texts(dataclasses.replace(weighed, candidate=candidate))

    def fallbacks(
        self, usable: list[WeighedCandidate], chosen: WeighedCandidate
    ) -> tuple[Plan, ...]:
        """Return the plans to use when a place of the chosen one fails; the last is plain."""
        fitting = [w for w in usable if self.memory.holds(w.plan, chosen.context)]
        plan, found = chosen.plan, []
        for target, draft in ((None, plan.draft), (plan.target, None), (plan.target, plan.draft)):
            left = [w for w in fitting if not _uses(w.plan, target, draft)]
            if (target or draft) and any(w.plan.plain for w in left):
                found.append(choose(left).plan)
        plain = [w for w in fitting if w.plan.plain and w.plan != plan]
        # The place where the target failed is tried last.
        elsewhere = [w for w in plain if not _uses(w.plan, plan.target, plan.draft)] or plain
        last = [min(elsewhere, key=_safest_first).plan] if elsewhere else []
        rest = [one for one in dict.fromkeys(found) if one != plan and one not in last]
        return (*rest, *last)

    def _measured(self, plan: Plan, estimate: Estimate) -> float:
        """Return the relative error of the speed-up that is due to the spread of measurements."""
        target = self.profile.at("target", plan.target)
        context = self.workload.middle
        parts = [_spread(target, 1, context), _spread(target, drafted_at_most(plan) + 1, context)]
        if plan.draft is not None:
            share = estimate.draft_s / estimate.seconds
            parts.append(share * _spread(self.profile.at("draft", plan.draft), 1, context))
        return math.hypot(*parts)


def _spread(measured: Measured, rows: int, context: int) -> float:
    """Return the relative spread of the measurement nearest in context, then in rows."""
    times = min(measured.times, key=lambda times: abs(times.context - context))
    spread = min(zip(times.widths, times.spread, strict=True), key=lambda w: abs(w[0] - rows))[1]
    return min(spread, _UNSTEADY) if measured.steady else _UNSTEADY


def _best_first(weighed: WeighedCandidate) -> tuple[float, bool, int, str]:
    plan = weighed.plan
    fixed = plan.draft_length is not None and not plan.plain
    return -weighed.rate, fixed, weighed.candidate.prediction.peak_bytes, plan.label


def _safest_first(weighed: WeighedCandidate) -> tuple[bool, bool, float, str]:
    """Return a sort key that puts the processor without pinned cores first, as always available."""
    place = weighed.plan.target
    return not _processor(place), place.cores is not None, -weighed.rate, place.label


def _uses(plan: Plan, target: Place | None, draft: Place | None) -> bool:
    """Return whether a plan needs one of two places that failed, for its role or on its device."""
    if plan.target == target or (draft is not None and plan.draft == draft):
        return True
    gone = {(p.device, p.provider) for p in (target, draft) if p is not None and not _processor(p)}
    used = {(p.device, p.provider) for p in (plan.target, plan.draft) if p is not None}
    return bool(gone & used)


def _processor(place: Place) -> bool:
    return place.device == CPU and place.provider in (None, _CPU_PROVIDER)
