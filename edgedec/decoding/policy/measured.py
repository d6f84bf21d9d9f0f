"""The default policy: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from typing import Any

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import CostCurve
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate
from edgedec.decoding.policy.evidence import RoundEvidence
from edgedec.decoding.policy.exploration import AskingBackoff, Exploration
from edgedec.decoding.policy.round_cost import CatchUpCost, RoundCost
from edgedec.errors import SnapshotError

_FORGET = 0.97
# Thresholds are recomputed after this many seconds of decoding, so that this takes a fraction of a
# percent of the time; and after 1, 2, 4, 7, ... rounds of a text.
_PLAN_EVERY_S = 0.05
# A look that costs no more tokens than this is taken before drafters are compared.
_CHEAP_LOOK = 0.1
# Tokens by which a drafter that is asked later must be better.
_LEAD = 0.1
_PLAIN = DraftLimits(0, 0)


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    A round that drafts d tokens takes T(d + 1) + d looks, where T is a measured curve that is
    corrected while decoding. For each drafter the policy learns how often a token is accepted given
    the draft's confidence in it, and by dynamic programming over the draft length computes when
    looking at the next token, and when drawing it, pays: when it adds more tokens than the same
    time yields otherwise (Dinkelbach's method for a ratio). Of several drafters, the one expected
    to add most drafts. Drafting nothing is allowed; an unused drafter is tried again within an
    allowance, by a look alone if that is informative. If nothing is drafted for a while and asking
    takes noticeable time, rounds are plain without asking.

    Args:
        target: seconds of a target pass by its rows, from ``calibrate``.
        draft_s: seconds of a draft model's pass over one row; None without one.
        most: most drafted tokens of a round.

    Attributes:
        draft_s: as given; 0 without a draft model.

    """

    name = "measured"

    def __init__(self, target: CostCurve, draft_s: float | None = None, most: int = 16) -> None:
        self._costs = RoundCost(target, most)
        self.draft_s = draft_s or 0.0
        self._limits = DraftLimits(most, most)
        self._drafters: dict[str, DrafterEstimate] = {}
        self._exploration, self._backoff = Exploration(), AskingBackoff()
        self._catch_up, self._round = CatchUpCost(self.draft_s), RoundEvidence()
        # Mean tokens that drafts recently added to a round; the drafter explored in this one.
        self._gain = 0.0
        self._explored: str | None = None
        # Drafters that have too much to read to be useful in this text.
        self._far: set[str] = set()
        self._rounds = self._plan_at = self._waited = 0
        self._resting = False
        self._since_plan_s = 0.0

    @property
    def lone_row_s(self) -> float | None:
        return self._costs.lone_row_s

    @property
    def slowdown(self) -> float | None:
        return self._costs.slowdown

    def begin(self, remaining: int) -> None:
        self._start_round()
        self._costs.begin()
        for drafter in self._drafters.values():
            drafter.begin()
        self._far.clear()
        self._backoff.begin()
        self._catch_up.begin(remaining)
        self._rounds = self._plan_at = 0
        self._plan()

    def learned(self) -> dict[str, Any]:
        return {name: drafter.learned() for name, drafter in self._drafters.items()}

    def learn_from(self, learned: dict[str, Any]) -> None:
        found = {}
        for name, raw in learned.items():
            if not drafting.known(name):
                continue
            if not isinstance(raw, dict):
                raise SnapshotError("the saved acceptance rates are damaged: save the text again")
            # A look at a draft model takes the time that was measured here.
            look_s = self.draft_s if drafting.info(name).needs_model else 0.0
            branching = raw.get("branching") is True
            found[name] = DrafterEstimate(self._limits.nodes, look_s, branching=branching)
            found[name].learn_from(raw)
        self._drafters.update(found)

    def limits(self) -> DraftLimits:
        self._resting = self._backoff.rest()
        if self._resting:
            return _PLAIN
        self._start_round()
        self._explored = self._exploration.next(self._drafters, self._far, self._gain, _CHEAP_LOOK)
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_reading(step)
        drafted = step.nodes
        if drafted == 0 and not self._opened(step):
            return False
        seen = self._round
        drafter = seen.asked
        if drafter is None or drafted >= min(self._limits.nodes, drafter.most):
            return False
        if step.value is not None:
            return self._go_on_branching(drafter, step, step.value)
        if seen.reach < drafter.peek[drafted] and not self._try_again(drafter, drafted):
            return False
        seen.looks += 1
        place = drafter.bin(step.offer.confidence())
        chance = drafter.chances[place]
        if seen.probing and not drafted and step.offer.token is None:
            chance = max(chance, drafter.prior[place])
        if seen.reach * chance < drafter.draw[drafted] or self._rival_wins(step, place):
            seen.decline(drafter, step, place)
            return False
        seen.reach *= drafter.chances[place]
        seen.bins.append(place)
        return True

    def observe(self, record: RoundRecord) -> None:
        self._catch_up.round(record.emitted)
        self._rounds += 1
        self._waited += 1
        if self._resting:
            return  # there is too little to learn for the time it takes
        costs = self._costs
        looks_s = self._round.learn_look(record, self._catch_up, costs.slowdown)
        self._round.learn(record)
        seconds = costs.observe(record, looks_s)
        plain_s = costs.plain_s
        self._account(record, seconds / plain_s - 1)
        self._backoff.observe(record, plain_s, looked=looks_s > _CHEAP_LOOK * plain_s)
        self._since_plan_s += seconds
        if self._since_plan_s > _PLAN_EVERY_S or self._rounds >= self._plan_at:
            self._plan()

    def _start_round(self) -> None:
        self._round.begin()
        self._explored = None
        self._catch_up.tokens = 0

    def _drafter(self, step: DraftStep) -> DrafterEstimate:
        name = step.offer.source
        drafter = self._drafters.get(name)
        if drafter is None:
            look_s = self.draft_s if step.offer.costly else 0.0
            branching = step.value is not None
            drafter = DrafterEstimate(self._limits.nodes, look_s, branching=branching)
            self._drafters[name] = drafter
            self._plan_one(name)
        return drafter

    # -- choosing a drafter --------------------------------------------------------------------

    def _opened(self, step: DraftStep) -> bool:
        """Return whether this drafter is a candidate, before it is looked at."""
        seen, name = self._round, step.offer.source
        if self._explored is not None and self._explored != name:
            return False
        drafter = self._drafter(step)
        seen.ask(drafter, self._costs.slowdown)
        if self._explored is not None:
            seen.probing = True
            return True
        self._far.discard(name)
        for other in step.offer.rivals:
            if other in self._far:
                continue
            rival = self._drafters.get(other)
            if rival is None:
                self._exploration.meet(other)
            else:
                seen.best_rival = max(seen.best_rival, rival.start)
        best = seen.best_rival
        return best <= 0 or drafter.look_price < _CHEAP_LOOK or drafter.start >= best

    def _rival_wins(self, step: DraftStep, place: int) -> bool:
        """Return whether a drafter that is asked later would do better."""
        seen = self._round
        if seen.asked is None or step.nodes or seen.probing:
            return False
        return seen.asked.first[place] + _LEAD < seen.best_rival

    def _worth_reading(self, step: DraftStep) -> bool:
        rate = self._costs.slowdown / self._costs.plain_s
        reads = self._catch_up.pays(step.behind, self._drafter(step), rate)
        if not reads:
            self._far.add(step.offer.source)
        return reads

    def _go_on_branching(self, drafter: DrafterEstimate, step: DraftStep, value: float) -> bool:
        seen, drafted = self._round, step.nodes
        if seen.probing and drafted:
            return False
        hopeless = drafted == 0 and step.offer.costly and drafter.start < 0
        if hopeless and not self._try_again(drafter, 0):
            return False  # even the best possible confidence is not worth the look
        bar = drafter.draw[drafted]
        # The confidence can only lower the value, and the first look of a new layer costs a pass.
        new_layer = step.depth > seen.layer
        look = drafter.look_price if new_layer else 0.0
        if drafter.chance(value) < bar + look and not self._try_again(drafter, drafted):
            return False
        if new_layer:
            seen.layer = step.depth
            seen.looks += 1
        place = drafter.bin(value * step.offer.confidence())
        if drafter.chances[place] < bar and not seen.probing:
            seen.decline(drafter, step, place)
            if not self._try_again(drafter, drafted):
                return False
        seen.bins.append(place)
        return True

    def _try_again(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether to draft despite a bad estimate, to check it."""
        seen = self._round
        if drafted == 0 and not seen.probing and drafter.probe_due():
            # The look is paid for now, since another drafter may be chosen.
            drafter.probed(drafter.look_price)
            seen.probing = True
        return seen.probing and drafted == 0

    # -- feedback ------------------------------------------------------------------------------

    def _account(self, record: RoundRecord, spent: float) -> None:
        """Account for drafters asked and not asked, and for the gain; ``spent`` is in tokens."""
        seen = self._round
        asked, bins = seen.asked, seen.bins
        self._exploration.count(self._drafters, asked if bins else None, self._waited)
        self._waited = 0
        gained = record.emitted - record.forced - 1 - spent
        if self._explored in self._drafters:
            self._drafters[self._explored].probed(max(self._gain, 0.0) - gained)
        elif asked is not None and seen.probing:
            asked.probed(-gained - seen.looks * asked.look_price)
        if asked is None:
            return
        if asked.branching:
            own = spent - seen.sunk_s / self._costs.plain_s
            asked.gained(sum([asked.chances[place] for place in bins]) - own)
        self._gain += (1 - _FORGET) * (gained - self._gain)

    def _plan(self) -> None:
        for name, drafter in self._drafters.items():
            if drafter.stale:
                self._plan_one(name)
        self._since_plan_s = 0.0
        self._plan_at = self._rounds + self._rounds // 2 + 1

    def _plan_one(self, name: str) -> None:
        costs, slowdown = self._costs, self._costs.slowdown
        seconds = [seconds / slowdown for seconds in costs.seconds()]
        price, extra_s = costs.price() * slowdown, costs.extra_s(name) / slowdown
        self._drafters[name].plan(price, seconds, extra_s)
