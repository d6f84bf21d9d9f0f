"""The default policy: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from typing import Any

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import LONG, CatchUp, CostCurve, LiveCost, RunningMedian
from edgedec.decoding.policy.drafter_estimate import Bin, DrafterEstimate
from edgedec.decoding.policy.stake import Stake
from edgedec.errors import SnapshotError

# Share by which a round changes the mean gain: it averages about 30 rounds, as the speed does.
_GAIN_RATE = 0.03
# Prices are computed every so many rounds.
_PLAN_EVERY = 4
# A peek that costs no more tokens than this is taken before drafters are compared: less than the
# estimates of two drafters err by.
_CHEAP_PEEK = 0.1
# Tokens per round that may be spent on a drafter that was given up: 0.2% of plain decoding's speed.
# It is tried again at most every 8 rounds, at least every 256.
_ALLOWANCE, _SOONEST, _LATEST = 0.002, 8, 256
# Tokens that an unused drafter might add beyond its estimate, for trying it to be worthwhile.
_HOPE = 1.0
# Rounds in a row without a draft, after which queries are rationed to the same share of the time,
# the policy's own counted as much again.
_PATIENCE = 8
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

    def query(self, drafter: DrafterEstimate) -> None:
        """Turn to another drafter; if the previous one was peeked at, it drafts nothing."""
        before = self.drafter
        if before is not None and self.peeks:
            self.sunk_s += self.peeks * before.peek_s.value
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

    def learn(self, record: RoundRecord) -> None:
        """Tell the estimates which of the tokens drawn, and of those declined, were right."""
        path, drafter = record.path or range(record.accepted + 1), self.drafter
        for node, bin_ in enumerate(self.bins, 1) if drafter is not None else ():
            # In a chain the first rejected token is known to be wrong; later ones are not.
            if drafter.branching or node <= len(path):
                drafter.learn(bin_, accepted=node in path)
        for other, drafted, bin_, token in self.declined:
            # Only known if the text followed the tokens drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                other.learn(bin_, accepted=record.tokens[drafted] == token)


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    For each drafter the policy learns how often a token is accepted given the draft's confidence in
    it. The draft is extended while the chance that the target reaches and accepts the next token
    exceeds the price of its row: the tokens that the same time yields otherwise (Dinkelbach's
    method for a ratio). Of several drafters, the one expected to add most drafts; one that is not
    used is tried again within an allowance. A text's drafts are never staked on more than the text
    has gained by them and a small amount. If nothing is drafted for a while and queries take
    noticeable time, rounds are plain without a query.

    Args:
        target: seconds of a target pass by its rows, from ``calibrate``.
        draft_s: seconds of a draft model's pass over one row; None without one.
        most: most drafted tokens of a round.

    Attributes:
        draft_s: as given; 0 without a draft model.

    """

    name = "measured"

    def __init__(self, target: CostCurve, draft_s: float | None = None, most: int = 16) -> None:
        self._costs = LiveCost(target, most)
        self.draft_s = draft_s or 0.0
        self._limits = DraftLimits(most, most)
        self._drafters: dict[str, DrafterEstimate] = {}
        # The round from which a drafter may be tried although others look better, or it bad.
        self._due: dict[str, int] = {}
        self._round = _Round()
        self._catch_up = CatchUp(self.draft_s)
        self._stake = Stake()
        # Mean tokens that drafts recently added to a round.
        self._gain = 0.0
        self._explored: str | None = None
        # Drafters that have too much to prefill to be useful in this text.
        self._out_of_reach: set[str] = set()
        # Rounds; those in a row without a draft, those left of a pause; what queries take.
        self._rounds = self._idle = self._pause = 0
        self._pausing = False
        self._query_s = RunningMedian(LONG, [0.0])

    @property
    def lone_row_s(self) -> float | None:
        return self._costs.at(1)

    @property
    def slowdown(self) -> float | None:
        return self._costs.slowdown

    def begin(self, remaining: int) -> None:
        self._round, self._explored = _Round(), None
        self._costs.begin()
        for drafter in self._drafters.values():
            drafter.begin()
        self._out_of_reach.clear()
        # A text is taken to be like the last one: after one without drafts, half the patience.
        self._idle, self._pause = min(self._idle, _PATIENCE // 2), 0
        self._catch_up.begin(remaining)
        self._stake.begin()
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
            # A peek at a draft model takes the time that was measured here.
            info, branching = drafting.info(name), raw.get("branching") is True
            peek_s = self.draft_s if info.needs_model else 0.0
            found[name] = DrafterEstimate(
                name,
                peek_s,
                branching=branching,
                copies=not info.needs_weights,
                at_once=info.needs_mask,
            )
            found[name].learn_from(raw)
        self._drafters.update(found)
        self._plan()

    def limits(self) -> DraftLimits:
        self._pausing = self._pause > 0
        if self._pausing:
            self._pause -= 1
            return _PLAIN
        self._round = _Round()
        self._catch_up.tokens = 0
        self._explored = None if self._rounds % _SOONEST else self._to_explore()
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_catching_up(step)
        if step.nodes == 0 and not self._is_candidate(step):
            return False
        drafter = self._round.drafter
        # A first token that is shown is compared with the text even if it cannot be afforded.
        if drafter is None or (
            (step.nodes or step.offer.token is None) and not self._affords(drafter, step.nodes)
        ):
            return False
        bin_ = self._peeked(drafter, step)
        if bin_ is None:
            return False
        seen, chance = self._round, bin_.chance
        if seen.probing and not step.nodes and step.offer.token is None:
            chance = max(chance, bin_.prior)
        pays = seen.reach * chance >= drafter.prices[step.nodes]
        if step.nodes == 0 and pays and not seen.probing and seen.best_rival > 0:
            pays = drafter.gain_from(bin_) >= seen.best_rival
        if step.value is not None:
            pays = pays or self._probes(drafter, step.nodes)
        else:
            seen.reach *= bin_.chance
        if pays and self._affords(drafter, step.nodes):
            seen.bins.append(bin_)
            return True
        seen.decline(drafter, step, bin_)
        if pays and not step.nodes and step.offer.token is not None:
            self._stake.passed(step.offer.token(), drafter.gain_from(bin_))
        return False

    def observe(self, record: RoundRecord) -> None:
        self._rounds += 1
        self._catch_up.round(record.emitted)
        if self._pausing:
            return  # there is too little to learn for the time it takes
        peeks_s = self._learn(record)
        seconds, plain_s = self._costs.observe(record, peeks_s), self._costs.plain_s
        self._account(record, seconds / plain_s - 1)
        self._ration(record, plain_s)
        if self._rounds % _PLAN_EVERY == 0:
            self._plan()

    # -- choosing a drafter --------------------------------------------------------------------

    def _drafter(self, step: DraftStep) -> DrafterEstimate:
        drafter = self._drafters.get(step.offer.source)
        if drafter is None:
            offer = step.offer
            drafter = self._drafters[offer.source] = DrafterEstimate(
                offer.source, self.draft_s if offer.costly else 0.0,
                branching=step.value is not None, copies=not offer.costly, at_once=offer.at_once,
            )  # fmt: skip
            self._plan()
        return drafter

    def _is_candidate(self, step: DraftStep) -> bool:
        """Return whether this drafter may draft, before it is peeked at."""
        seen, name = self._round, step.offer.source
        if self._explored is not None and self._explored != name:
            return False
        drafter = self._drafter(step)
        seen.query(drafter)
        if self._explored is not None:
            seen.probing = True
            return True
        self._out_of_reach.discard(name)
        for other in step.offer.rivals:
            rival = self._drafters.get(other)
            if rival is None:
                self._due.setdefault(other, self._rounds)
            elif other not in self._out_of_reach:
                seen.best_rival = max(seen.best_rival, rival.gain)
        best = seen.best_rival
        return best <= 0 or drafter.peek_tokens < _CHEAP_PEEK or drafter.gain >= best

    def _to_explore(self) -> str | None:
        """Return a drafter that others keep from drafting, to be tried; mostly None."""
        for name, due in self._due.items():
            if due > self._rounds or name in self._out_of_reach:
                continue
            drafter = self._drafters.get(name)
            # One with cheap peeks is peeked at anyway.
            if drafter is None or (
                drafter.peek_tokens >= _CHEAP_PEEK and drafter.gain + _HOPE > self._gain
            ):
                return name
        return None

    def _worth_catching_up(self, step: DraftStep) -> bool:
        drafter = self._drafter(step)
        gain = max(0.0, drafter.gain) * (1.0 if drafter.tried else _UNPROVEN)
        pays = self._catch_up.pays(step.behind, gain, 1 / self._costs.plain_s)
        if not pays:
            self._out_of_reach.add(step.offer.source)
        return pays

    # -- the next token ------------------------------------------------------------------------

    def _peeked(self, drafter: DrafterEstimate, step: DraftStep) -> Bin | None:
        """Return the bin of the next token; None if it is not worth a peek."""
        seen, drafted, value = self._round, step.nodes, step.value
        new_layer = value is None or step.depth > seen.layer
        if value is None:
            worth = drafter.worth_a_peek(drafted, seen.reach)
        else:
            # The confidence can only lower the value, and the first peek of a layer costs a pass.
            least = drafter.prices[drafted] + (drafter.peek_tokens if new_layer else 0.0)
            costs_more = not drafted and step.offer.costly and drafter.gain < 0
            worth = not costs_more and drafter.bin(value).chance >= least
        if not (worth or self._probes(drafter, drafted)) or (
            value is not None and seen.probing and drafted
        ):
            return None
        if new_layer and not (drafted and drafter.at_once):
            seen.peeks += 1
        seen.layer = step.depth
        bin_ = drafter.bin(step.offer.confidence() * (1.0 if value is None else value))
        bin_.met += 1
        return bin_

    def _probes(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether to try a drafter despite a bad estimate, to check it."""
        if not drafted and self._due.get(drafter.name, 0) <= self._rounds:
            self._round.probing = True
        return self._round.probing and not drafted

    def _affords(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether the text can afford one more token, with the peeks after the first."""
        return self._stake.affords(drafted, drafted * drafter.peek_tokens)

    # -- feedback ------------------------------------------------------------------------------

    def _learn(self, record: RoundRecord) -> float:
        """Tell the estimates of a round; return the usual seconds of its peeks."""
        seen, drafter = self._round, self._round.drafter
        if drafter is None:
            return 0.0
        seen.learn(record)
        if self._catch_up.tokens:
            self._catch_up.took(record.draft_s - seen.sunk_s - seen.peeks * drafter.peek_s.value)
        elif seen.peeks and not seen.sunk_s:
            drafter.peek_s.add(record.draft_s / seen.peeks)
        return seen.sunk_s + seen.peeks * drafter.peek_s.value

    def _account(self, record: RoundRecord, spent: float) -> None:
        """Account for the drafter queried, the one explored, and the gain; ``spent`` in tokens."""
        seen, drafter = self._round, self._round.drafter
        gained = record.emitted - record.forced - 1 - spent
        self._stake.settle(record, gained)
        if self._explored is not None:
            self._wait(self._explored, max(self._gain, 0.0) - gained)
        elif drafter is not None and seen.probing:
            self._wait(drafter.name, -gained)
        elif drafter is not None and seen.bins:
            self._due[drafter.name] = self._rounds + 2 * _SOONEST
        if drafter is None:
            return
        if drafter.branching:
            own = spent - seen.sunk_s / self._costs.plain_s
            drafter.learn_gain(sum([bin_.chance for bin_ in seen.bins]) - own)
        self._gain += _GAIN_RATE * (gained - self._gain)

    def _wait(self, name: str, lost: float) -> None:
        """Let a drafter that was tried wait until the allowance has paid for what that cost."""
        rounds = lost * len(self._drafters) / _ALLOWANCE
        self._due[name] = self._rounds + int(min(max(rounds, 0.0), _LATEST))

    def _ration(self, record: RoundRecord, plain_s: float) -> None:
        """Pause after rounds without a draft, if queries take noticeable time."""
        self._idle = 0 if record.drafted else self._idle + 1
        drafter = self._round.drafter
        if not record.drafted and (drafter is None or drafter.copies):
            self._query_s.add(record.draft_s)
        if self._idle >= _PATIENCE:
            rounds = 2 * self._query_s.value / (_ALLOWANCE * plain_s)
            self._pause = min(max(0, int(rounds) - 1), self._idle)
            self._idle += self._pause

    def _plan(self) -> None:
        """Compute the prices of rows and drafters."""
        costs, price = self._costs, self._costs.price
        self._stake.prices([seconds / costs.plain_s for seconds in costs.steps()])
        for drafter in self._drafters.values():
            drafter.plan(costs, price)
