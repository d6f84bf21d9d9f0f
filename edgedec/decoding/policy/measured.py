"""The default policy: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from typing import Any

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import LONG, CatchUpCost, CostCurve, RoundCost, RunningMedian
from edgedec.decoding.policy.drafter_estimate import Bin, DrafterEstimate
from edgedec.decoding.policy.stake import Stake
from edgedec.errors import SnapshotError

# Share by which a round changes the mean gain: it averages about 30 rounds, as the speed does.
_GAIN_RATE = 0.03
# Prices are computed every so many rounds, and after each of a text's first ones for the drafter
# that was queried last.
_PLAN_EVERY, _EARLY = 8, 16
# A peek that costs no more tokens than this is taken before drafters are compared: less than the
# estimates of two drafters err by.
_CHEAP_PEEK = 0.1
# Tokens by which a drafter that is queried later must be better: its own peeks are still to come.
_LEAD = 0.1
# Tokens per round that may be spent on a drafter that was given up: 0.2% of plain decoding's speed.
# It is tried again at most every 8 rounds, at least every 256.
_ALLOWANCE, _SOONEST, _LATEST = 0.002, 8, 256
# Tokens that an unused drafter might add beyond its estimate, for trying it to be worthwhile.
_HOPE = 1.0
# Rounds in a row without a draft, after which queries are rationed to the same share of the time,
# the policy's own counted as much again; and the longest pause, twice as long each time.
_PATIENCE, _FIRST_PAUSE, _LONGEST_PAUSE = 8, 12, 64
# Trust in the estimate of a drafter that has not drafted in this text: it suits every second one.
_UNPROVEN = 0.5
_PLAIN = DraftLimits(0, 0)


class _Round:
    """Observations of a round's drafters, which teach their estimates when it is over.

    Attributes:
        drafter: queried last; None before the first query.
        probing: it drafts although its estimate is bad, to check the estimate.
        best_rival: tokens that the best drafter queried after it is expected to add.
        reach: in a chain, the chance that the target reaches the next token.
        bins: confidence bins of the tokens drawn.
        declined: a drafter, its drafted tokens so far, and the bin and token it would have drawn.
        peeks: peeks at the drafter's next token so far; ``layer`` is the depth of the last in a
            tree.
        sunk_s: seconds of peeks at drafters queried before it, which draft nothing.

    """

    def __init__(self) -> None:
        self.drafter: DrafterEstimate | None = None
        self.declined: list[tuple[DrafterEstimate, int, Bin, int]] = []
        self.sunk_s = 0.0
        self._clear()

    def _clear(self) -> None:
        self.reach, self.best_rival, self.probing = 1.0, 0.0, False
        self.bins: list[Bin] = []
        self.peeks, self.layer = 0, -1

    def query(self, drafter: DrafterEstimate, slowdown: float) -> None:
        """Turn to another drafter; if the previous one was peeked at, it drafts nothing."""
        before = self.drafter
        if before is not None and self.peeks:
            self.sunk_s += self.peeks * before.peek_s.value * slowdown
            if before.branching:
                before.learn_gain(-self.peeks * before.peek_tokens)
        self._clear()
        self.drafter = drafter

    def decline(self, drafter: DrafterEstimate, step: DraftStep, bin_: Bin) -> None:
        """Note that the token peeked at, of this bin, is not drawn."""
        token = step.offer.token
        if token is None or (drafter.branching and step.nodes):
            drafter.fade(bin_)
        else:
            self.declined.append((drafter, step.nodes, bin_, token()))

    def learn(self, drafter: DrafterEstimate, record: RoundRecord) -> None:
        """Tell the estimates which of the tokens drawn, and of those declined, were right."""
        path = record.path or range(record.accepted + 1)
        accepted = len(path) - 1
        if drafter.branching:
            for node, bin_ in enumerate(self.bins, 1):
                drafter.learn(bin_, accepted=node in path)
        else:
            # The first rejected token is known to be wrong; later ones are not.
            for depth, bin_ in enumerate(self.bins[: accepted + 1]):
                drafter.learn(bin_, accepted=depth < accepted)
        for other, drafted, bin_, token in self.declined:
            # Only known if the text followed the tokens drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                other.learn(bin_, accepted=record.tokens[drafted] == token)


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    A round that drafts d tokens takes T(d + 1) + d peeks, where T is a measured curve that is
    corrected while decoding. For each drafter the policy learns how often a token is accepted given
    the draft's confidence in it. The draft is extended while the chance that the target reaches and
    accepts the next token exceeds the price of its row: the tokens that the same time yields
    otherwise (Dinkelbach's method for a ratio). Of several drafters, the one expected to add most
    drafts. Drafting nothing is allowed; an unused drafter is tried again within an allowance, by a
    peek alone if that is informative. A text's drafts are never staked on more than the text has
    gained by them and a small amount. If nothing is drafted for a while and queries take noticeable
    time, rounds are plain without a query.

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
        self._round = _Round()
        self._catch_up = CatchUpCost(self.draft_s)
        self._stake = Stake()
        # Mean tokens that drafts recently added to a round.
        self._gain = 0.0
        # The drafter explored in this round, and one that has never been queried.
        self._explored: str | None = None
        self._new: str | None = None
        # Drafters that have too much to prefill to be useful in this text.
        self._out_of_reach: set[str] = set()
        self._rounds = self._begun_at = 0
        # Rounds without a draft, those left of a pause, the longest pause; what queries take.
        self._idle = self._pause = 0
        self._longest, self._pausing = _FIRST_PAUSE, False
        self._query_s = RunningMedian(LONG, [0.0])

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
        # A text is taken to be like the last one: after one without drafts, half the patience.
        self._idle = _PATIENCE // 2 if self._idle >= _PATIENCE else 0
        self._pause, self._longest = 0, _FIRST_PAUSE
        self._catch_up.begin(remaining)
        self._stake.begin()
        self._begun_at = self._rounds
        self._plan(*self._drafters)

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
            found[name] = self._estimate(
                name, peek_s, at_once=drafting.info(name).needs_mask, **kind
            )
            found[name].learn_from(raw)
        self._drafters.update(found)

    def limits(self) -> DraftLimits:
        self._pausing = self._pause > 0
        if self._pausing:
            self._pause -= 1
            return _PLAIN
        self._start_round()
        if self._new is not None or self._rounds % _SOONEST == 0:
            self._explored, self._new = self._new or self._to_explore(), None
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_catching_up(step)
        if step.nodes == 0 and not self._is_candidate(step):
            return False
        drafter = self._round.drafter
        if drafter is None:
            return False
        # A first token that is shown for nothing is compared with the text even if it cannot be
        # afforded; a peek at a draft model that may not draft would only cost time.
        free = step.offer.token is not None and not step.offer.costly
        if (step.nodes or not free) and not self._affords(drafter, step.nodes):
            return False
        if step.value is None:
            return self._go_on_in_chain(drafter, step)
        return self._go_on_in_tree(drafter, step, step.value)

    def observe(self, record: RoundRecord) -> None:
        self._rounds += 1
        self._catch_up.round(record.emitted)
        if self._pausing:
            return  # there is too little to learn for the time it takes
        peeks_s = self._learn(record)
        seconds, plain_s = self._costs.observe(record, peeks_s), self._costs.plain_s
        self._account(record, seconds / plain_s - 1)
        self._ration(record, plain_s, peeked=peeks_s > _CHEAP_PEEK * plain_s)
        if self._rounds % _PLAN_EVERY == 0:
            self._plan(*self._drafters)
        elif self._rounds - self._begun_at < _EARLY and self._round.drafter is not None:
            self._plan(self._round.drafter.name)

    def _start_round(self) -> None:
        self._round = _Round()
        self._explored = None
        self._catch_up.tokens = 0

    def _estimate(self, name: str, peek_s: float, **kind: bool) -> DrafterEstimate:
        return DrafterEstimate(name, self._limits.nodes, peek_s, now=self._rounds, **kind)

    def _drafter(self, step: DraftStep) -> DrafterEstimate:
        drafter = self._drafters.get(step.offer.source)
        if drafter is None:
            offer = step.offer
            peek_s, branching = self.draft_s if offer.costly else 0.0, step.value is not None
            kind = {"branching": branching, "copies": not offer.costly, "at_once": offer.at_once}
            drafter = self._drafters[offer.source] = self._estimate(offer.source, peek_s, **kind)
            self._plan(offer.source)
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
            if rival is None:
                self._new = other if other not in self._out_of_reach else self._new
            elif other not in self._out_of_reach:
                seen.best_rival = max(seen.best_rival, rival.gain)
        best = seen.best_rival
        return best <= 0 or drafter.peek_tokens < _CHEAP_PEEK or drafter.gain >= best

    def _to_explore(self) -> str | None:
        """Return a drafter that others keep from drafting, to be tried; mostly None."""
        for name, drafter in self._drafters.items():
            unused = self._rounds - drafter.drafted_at > 2 * _SOONEST
            costly = drafter.peek_tokens >= _CHEAP_PEEK  # one with cheap peeks needs none
            hoped = drafter.gain + _HOPE > self._gain and name not in self._out_of_reach
            if unused and costly and hoped and drafter.due <= self._rounds:
                return name
        return None

    def _worth_catching_up(self, step: DraftStep) -> bool:
        rate = self._costs.slowdown / self._costs.plain_s
        drafter = self._drafter(step)
        gain = max(0.0, drafter.gain) * (1.0 if drafter.tried else _UNPROVEN)
        pays = self._catch_up.pays(step.behind, gain, rate)
        if not pays:
            self._out_of_reach.add(step.offer.source)
        return pays

    def _probes(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether to try a drafter despite a bad estimate, to check it."""
        if not drafted and drafter.due <= self._rounds:
            self._round.probing = True
        return self._round.probing and not drafted

    # -- the next token ------------------------------------------------------------------------

    def _go_on_in_chain(self, drafter: DrafterEstimate, step: DraftStep) -> bool:
        seen, drafted = self._round, step.nodes
        if drafter.step(drafted, seen.reach)[0] <= 0 and not self._probes(drafter, drafted):
            return False
        if not (drafted and drafter.at_once):
            seen.peeks += 1
        bin_ = drafter.bin(step.offer.confidence())
        bin_.met += 1
        chance = bin_.chance
        if seen.probing and not drafted and step.offer.token is None:
            chance = max(chance, bin_.prior)
        pays = seen.reach * chance >= drafter.prices[drafted]
        if pays and not drafted and not seen.probing and seen.best_rival > 0:
            pays = drafter.gain_from(bin_) + _LEAD >= seen.best_rival
        if not self._drawn(drafter, step, bin_, pays=pays):
            return False
        seen.reach *= bin_.chance
        return True

    def _go_on_in_tree(self, drafter: DrafterEstimate, step: DraftStep, value: float) -> bool:
        seen, drafted = self._round, step.nodes
        if seen.probing and drafted:
            return False
        # The confidence can only lower the value, and the first peek of a new layer costs a pass.
        price, new_layer = drafter.prices[drafted], step.depth > seen.layer
        least = price + drafter.peek_tokens if new_layer else price
        costs_more = not drafted and step.offer.costly and drafter.gain < 0
        unlikely = costs_more or drafter.bin(value).chance < least
        if unlikely and not self._probes(drafter, drafted):
            return False
        if new_layer:
            seen.layer = step.depth
            seen.peeks += 1
        bin_ = drafter.bin(value * step.offer.confidence())
        bin_.met += 1
        pays = bin_.chance >= price or self._probes(drafter, drafted)
        return self._drawn(drafter, step, bin_, pays=pays)

    def _affords(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether the text can afford one more token, with the peeks after the first."""
        return self._stake.affords(drafted, drafted * drafter.peek_tokens)

    def _drawn(self, drafter: DrafterEstimate, step: DraftStep, bin_: Bin, *, pays: bool) -> bool:
        """Return whether a token that was peeked at is drawn: if the text can afford it."""
        if pays and self._affords(drafter, step.nodes):
            self._round.bins.append(bin_)
            return True
        self._round.decline(drafter, step, bin_)
        if pays and not step.nodes and step.offer.token is not None:
            self._stake.passed(step.offer.token(), drafter.gain_from(bin_))
        return False

    # -- feedback ------------------------------------------------------------------------------

    def _learn(self, record: RoundRecord) -> float:
        """Tell the estimates of a round; return the usual seconds of its peeks."""
        seen, drafter, slowdown = self._round, self._round.drafter, self._costs.slowdown
        if drafter is None:
            return 0.0
        seen.learn(drafter, record)
        peeks_s = seen.sunk_s + seen.peeks * drafter.peek_s.value * slowdown
        if self._catch_up.tokens:
            self._catch_up.took((record.draft_s - peeks_s) / slowdown)
        elif seen.peeks and not seen.sunk_s:
            drafter.peek_s.add(record.draft_s / seen.peeks / slowdown)
            peeks_s = seen.peeks * drafter.peek_s.value * slowdown
        return peeks_s

    def _account(self, record: RoundRecord, spent: float) -> None:
        """Account for the drafter queried, the one explored, and the gain; ``spent`` in tokens."""
        seen, drafter = self._round, self._round.drafter
        gained = record.emitted - record.forced - 1 - spent
        self._stake.settle(record, gained)
        explored = self._drafters.get(self._explored or "")
        if explored is not None:
            self._wait(explored, max(self._gain, 0.0) - gained)
        elif drafter is not None and seen.probing:
            self._wait(drafter, -gained)
        if drafter is None:
            return
        if seen.bins:
            drafter.drafted_at = self._rounds
        if drafter.branching:
            own = spent - seen.sunk_s / self._costs.plain_s
            drafter.learn_gain(sum([bin_.chance for bin_ in seen.bins]) - own)
        self._gain += _GAIN_RATE * (gained - self._gain)

    def _wait(self, drafter: DrafterEstimate, lost: float) -> None:
        """Let a drafter that was tried wait until the allowance has paid for what that cost."""
        rounds = lost * len(self._drafters) / _ALLOWANCE
        drafter.due = self._rounds + int(min(max(rounds, 0.0), _LATEST))

    def _ration(self, record: RoundRecord, plain_s: float, *, peeked: bool) -> None:
        """Pause after rounds without a draft, if queries take noticeable time."""
        if record.drafted:
            self._idle, self._longest = 0, _FIRST_PAUSE
            return
        self._idle += 1
        if not peeked:
            self._query_s.add(record.draft_s)
        if self._idle >= _PATIENCE:
            rounds = 2 * self._query_s.value / (_ALLOWANCE * plain_s)
            self._pause = min(max(0, int(rounds) - 1), self._longest)
            self._longest = min(2 * self._longest, _LONGEST_PAUSE)

    def _plan(self, *names: str) -> None:
        """Compute the prices of these drafters."""
        if not names:
            return
        costs, slowdown = self._costs, self._costs.slowdown
        seconds = [seconds / slowdown for seconds in costs.seconds()]
        price = costs.price() * slowdown
        self._stake.prices(seconds)
        for name in names:
            self._drafters[name].plan(price, seconds, costs.extra_s / slowdown)
