"""The default policy: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import CostCurve
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate
from edgedec.decoding.policy.evidence import RoundEvidence
from edgedec.decoding.policy.query_backoff import QueryBackoff
from edgedec.decoding.policy.round_cost import CatchUpCost, RoundCost
from edgedec.decoding.policy.stake import Stake
from edgedec.errors import SnapshotError

# Share by which a round changes the mean gain: it averages about 30 rounds, as the speed does.
_GAIN_RATE = 0.03
# Thresholds are computed at rounds 1, 2, 4, 7, ... of a text, at last every 64, and between those
# when a chance has moved, at most once in these seconds of decoding: a fraction of a percent.
_PLAN_EVERY, _PLAN_EVERY_S = 64, 0.05
# A peek that costs no more tokens than this is taken before drafters are compared: less than the
# estimates of two drafters err by.
_CHEAP_PEEK = 0.1
# Tokens by which a drafter that is queried later must be better: its own peeks are still to come.
_LEAD = 0.1
# How often, in rounds, to look for a drafter to explore, which takes time for each of them, and
# rounds that it must have been unused: as long as a change of text takes to show.
_EXPLORE_EVERY, _UNUSED = 8, 16
# Tokens that it might add beyond its estimate, for exploring it to be worthwhile: one a round.
_HOPE = 1.0
_PLAIN = DraftLimits(0, 0)


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    A round that drafts d tokens takes T(d + 1) + d peeks, where T is a measured curve that is
    corrected while decoding. For each drafter the policy learns how often a token is accepted given
    the draft's confidence in it, and by dynamic programming over the draft length computes when
    peeking at the next token, and when drawing it, pays: when it adds more tokens than the same
    time yields otherwise (Dinkelbach's method for a ratio). Of several drafters, the one expected
    to add most drafts. Drafting nothing is allowed; an unused drafter is tried again within an
    allowance, by a peek alone if that is informative. A text's drafts are never staked on more than
    the text has gained by them and a small amount. If nothing is drafted for a while and queries
    take noticeable time, rounds are plain without a query.

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
        self._backoff, self._round = QueryBackoff(), RoundEvidence()
        self._catch_up = CatchUpCost(self.draft_s)
        self._stake = Stake()
        # Mean tokens that drafts recently added to a round.
        self._gain = 0.0
        # The drafter explored in this round, and one that has never been queried.
        self._explored: str | None = None
        self._new: str | None = None
        # Drafters that have too much to prefill to be useful in this text.
        self._out_of_reach: set[str] = set()
        self._rounds = self._begun_at = self._plan_at = self._explore_at = 0
        self._pausing = False
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
        self._out_of_reach.clear()
        self._backoff.begin()
        self._catch_up.begin(remaining)
        self._stake.begin()
        self._begun_at = self._rounds
        self._plan(every=True)

    def learned(self) -> dict[str, Any]:
        return {name: drafter.learned() for name, drafter in self._drafters.items()}

    def learn_from(self, learned: dict[str, Any]) -> None:
        found = {}
        for name, raw in learned.items():
            if not drafting.known(name):
                continue
            if not isinstance(raw, dict):
                raise SnapshotError("the saved acceptance rates are damaged: save the text again")
            # A peek at a draft model takes the time that was measured here.
            peek_s = self.draft_s if drafting.info(name).needs_model else 0.0
            kind = {"branching": raw.get("branching") is True}
            found[name] = self._estimate(peek_s, at_once=drafting.info(name).needs_mask, **kind)
            found[name].learn_from(raw)
        self._drafters.update(found)

    def limits(self) -> DraftLimits:
        self._pausing = self._backoff.pauses()
        if self._pausing:
            return _PLAIN
        self._start_round()
        if self._new is not None or self._rounds >= self._explore_at:
            self._explored, self._new = self._new or self._to_explore(), None
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_catching_up(step)
        drafted, seen = step.nodes, self._round
        if drafted == 0 and not self._is_candidate(step):
            return False
        drafter = seen.queried
        if drafter is None or drafted >= drafter.longest:
            return False
        if step.value is not None:
            return self._go_on_branching(drafter, step, step.value)
        if seen.reach < drafter.peek_at[drafted] and not self._try_again(drafter, drafted):
            return False
        if not (drafted and drafter.at_once):
            seen.peeks += 1
        bin_ = drafter.register(step.offer.confidence())
        chance = bin_.chance
        if seen.probing and not drafted and step.offer.token is None:
            chance = max(chance, bin_.prior)
        rival_wins = not drafted and not seen.probing and bin_.gain + _LEAD < seen.best_rival
        pays = not rival_wins and seen.reach * chance >= drafter.draw_at[drafted]
        if not pays or not self._stake.affords(drafted):
            seen.decline(drafter, step, bin_)
            if pays and not drafted and step.offer.token is not None:
                self._stake.passed(step.offer.token(), bin_.gain)
            return False
        seen.reach *= bin_.chance
        seen.bins.append(bin_)
        return True

    def observe(self, record: RoundRecord) -> None:
        self._rounds += 1
        self._catch_up.round(record.emitted)
        if self._pausing:
            return  # there is too little to learn for the time it takes
        costs = self._costs
        peeks_s = self._round.learn(record, self._catch_up, costs.slowdown)
        seconds, plain_s = costs.observe(record, peeks_s), costs.plain_s
        self._account(record, seconds / plain_s - 1)
        self._backoff.observe(record, plain_s, peeked=peeks_s > _CHEAP_PEEK * plain_s)
        self._since_plan_s += seconds
        if self._rounds >= self._plan_at:
            self._plan(every=True)
        elif self._since_plan_s > _PLAN_EVERY_S:
            self._plan(every=False)

    def _start_round(self) -> None:
        self._round.begin()
        self._explored = None
        self._catch_up.tokens = 0

    def _estimate(self, peek_s: float, **kind: bool) -> DrafterEstimate:
        return DrafterEstimate(self._limits.nodes, peek_s, now=self._rounds, **kind)

    def _drafter(self, step: DraftStep) -> DrafterEstimate:
        drafter = self._drafters.get(step.offer.source)
        if drafter is None:
            peek_s = self.draft_s if step.offer.costly else 0.0
            kind = {
                "branching": step.value is not None, "at_once": step.offer.at_once,
                "copies": not step.offer.costly,
            }  # fmt: skip
            drafter = self._estimate(peek_s, **kind)
            self._drafters[step.offer.source] = drafter
            self._compute([step.offer.source])
        return drafter

    # -- choosing a drafter --------------------------------------------------------------------

    def _is_candidate(self, step: DraftStep) -> bool:
        """Return whether this drafter may draft, before it is peeked at."""
        seen, name = self._round, step.offer.source
        if self._explored is not None and self._explored != name:
            return False
        drafter = self._drafter(step)
        seen.query(drafter, self._costs.slowdown)
        if self._explored is not None:
            seen.probing = True
            return True
        self._out_of_reach.discard(name)
        for other in step.offer.rivals:
            rival = self._drafters.get(other)
            if other in self._out_of_reach:
                continue
            if rival is None:
                self._new = other
            elif rival.gain > seen.best_rival:
                seen.best_rival = rival.gain
        best = seen.best_rival
        return best <= 0 or drafter.peek_tokens < _CHEAP_PEEK or drafter.gain >= best

    def _to_explore(self) -> str | None:
        """Return a drafter that others keep from drafting, to be tried; mostly None.

        Rounds without a drafter pay for its exploration. One with cheap peeks needs none.
        """
        drafters, now = self._drafters, self._rounds
        elapsed = now - self._explore_at + _EXPLORE_EVERY
        self._explore_at = now + _EXPLORE_EVERY
        # The more drafters there are, the less each may cost.
        share = 2 / (1 + len(drafters))
        for drafter in drafters.values():
            drafter.earn(share * min(elapsed, now - drafter.drafted_at))
        for name, drafter in drafters.items():
            unused = now - drafter.drafted_at > _UNUSED and name not in self._out_of_reach
            affordable = drafter.peek_tokens >= _CHEAP_PEEK and drafter.probe_due()
            if unused and affordable and drafter.gain + _HOPE > self._gain:
                return name
        return None

    def _worth_catching_up(self, step: DraftStep) -> bool:
        rate = self._costs.slowdown / self._costs.plain_s
        pays = self._catch_up.pays(step.behind, self._drafter(step), rate)
        if not pays:
            self._out_of_reach.add(step.offer.source)
        return pays

    def _go_on_branching(self, drafter: DrafterEstimate, step: DraftStep, value: float) -> bool:
        seen, drafted = self._round, step.nodes
        if seen.probing and drafted:
            return False
        # The confidence can only lower the value, and the first peek of a new layer costs a pass.
        bar, new_layer = drafter.draw_at[drafted], step.depth > seen.layer
        least = bar + drafter.peek_tokens if new_layer else bar
        costs_more = not drafted and step.offer.costly and drafter.gain < 0
        unlikely = costs_more or drafter.bin(value).chance < least
        if unlikely and not self._try_again(drafter, drafted):
            return False
        if new_layer:
            seen.layer = step.depth
            seen.peeks += 1
        bin_ = drafter.register(value * step.offer.confidence())
        if not self._stake.affords(drafted):
            seen.decline(drafter, step, bin_)
            if bin_.chance >= bar and not drafted and step.offer.token is not None:
                self._stake.passed(step.offer.token(), max(drafter.gain, 0.0))
            return False
        if bin_.chance < bar and not seen.probing:
            seen.decline(drafter, step, bin_)
            if not self._try_again(drafter, drafted):
                return False
        seen.bins.append(bin_)
        return True

    def _try_again(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether to draft despite a bad estimate, to check it."""
        seen = self._round
        if drafted:
            return False
        if not seen.probing and drafter.probe_due():
            # The peek is paid for now, since another drafter may be chosen.
            drafter.probed(drafter.peek_tokens)
            seen.probing = True
        return seen.probing

    # -- feedback ------------------------------------------------------------------------------

    def _account(self, record: RoundRecord, spent: float) -> None:
        """Account for the drafter queried, the one explored, and the gain; ``spent`` in tokens."""
        seen = self._round
        queried, bins = seen.queried, seen.bins
        gained = record.emitted - record.forced - 1 - spent
        self._stake.settle(record, gained)
        if self._explored in self._drafters:
            self._drafters[self._explored].probed(max(self._gain, 0.0) - gained)
        elif queried is not None and seen.probing:
            queried.probed(-gained - seen.peeks * queried.peek_tokens)
        if queried is None:
            return
        if bins:
            queried.drafted_at = self._rounds
        if queried.branching:
            own = spent - seen.sunk_s / self._costs.plain_s
            queried.learn_gain(sum([bin_.chance for bin_ in bins]) - own)
        self._gain += _GAIN_RATE * (gained - self._gain)

    def _plan(self, *, every: bool) -> None:
        found = self._drafters.items()
        self._compute([name for name, one in found if one.moved or (every and one.stale)])
        self._since_plan_s = 0.0
        if every:
            in_text = self._rounds - self._begun_at
            self._plan_at = self._rounds + min(in_text // 2 + 1, _PLAN_EVERY)

    def _compute(self, names: Sequence[str]) -> None:
        """Compute the thresholds of these drafters."""
        if not names:
            return
        costs, slowdown = self._costs, self._costs.slowdown
        seconds = [seconds / slowdown for seconds in costs.seconds()]
        price = costs.price() * slowdown
        self._stake.prices(seconds)
        for name in names:
            self._drafters[name].plan(price, seconds, costs.extra_s(name) / slowdown)
