"""The default policy: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from typing import Any

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import LONG, CatchUp, CostCurve, LiveCost, RunningMedian, Stake
from edgedec.decoding.policy.drafter_estimate import Bin, DrafterEstimate
from edgedec.errors import SnapshotError

# Prices are computed every so many rounds.
_PLAN_EVERY = 4
# Tokens per round that may be spent on a drafter that was given up: 0.2% of plain decoding's speed.
# It is tried again at most every 8 rounds, at least every 256.
_ALLOWANCE, _SOONEST, _LATEST = 0.002, 8, 256
# Rounds in a row without a draft, after which queries are rationed to the same share of the time,
# the policy's own counted as much again.
_PATIENCE = 8
# Trust in the estimate of a drafter that has not drafted in this text: it suits every second one.
_UNPROVEN = 0.5
_PLAIN = DraftLimits(0, 0)


class _Round:
    """Observations of a round, which teach the drafters' estimates when it is over.

    Attributes:
        drafter: queried last; None before the first query.
        probing: it drafts although its estimate is bad, to check the estimate.
        best_rival: tokens that the best drafter queried after it is expected to add.
        reach: in a chain, the chance that the target reaches the next token.
        bins: confidence bins of the tokens drawn.
        peeks: peeks at the drafter's next token so far; ``layer`` is the depth of the last in a
            tree.
        declined: a drafter, its drafted tokens so far, and the bin and token it would have drawn.
        sunk_s: seconds of peeks at drafters queried before it, which draft nothing.

    """

    def __init__(self) -> None:
        self.declined: list[tuple[DrafterEstimate, int, Bin, int]] = []
        self.sunk_s = 0.0
        self.query(None)

    def query(self, drafter: DrafterEstimate | None) -> None:
        """Turn to another drafter."""
        self.drafter = drafter
        self.reach, self.best_rival, self.probing = 1.0, 0.0, False
        self.bins: list[Bin] = []
        self.peeks, self.layer = 0, -1

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
        for node, bin_ in enumerate(self.bins, 1):
            # In a chain the first rejected token is known to be wrong; later ones are not.
            if drafter is not None and (drafter.branching or node <= len(path)):
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
        draft_s: seconds of a draft model's pass over one row; None without one, when
            the attribute is 0.
        most: most drafted tokens of a round.

    """

    name = "measured"

    def __init__(self, target: CostCurve, draft_s: float | None = None, most: int = 16) -> None:
        self._costs, self.draft_s = LiveCost(target, most), draft_s or 0.0
        self._limits = DraftLimits(most, most)
        self._drafters: dict[str, DrafterEstimate] = {}
        # The round from which a drafter may be tried although others look better, or it bad.
        self._due: dict[str, int] = {}
        self._round, self._explored = _Round(), ""
        self._catch_up, self._stake = CatchUp(self.draft_s), Stake()
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
        self._round, self._explored = _Round(), ""
        for drafter in self._drafters.values():
            drafter.begin()
        self._out_of_reach.clear()
        self._idle = self._pause = 0
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
            found[name] = DrafterEstimate(
                name, self.draft_s if info.needs_model else 0.0, branching=branching,
                copies=not info.needs_weights, at_once=info.needs_mask,
            )  # fmt: skip
            found[name].learn_from(raw)
        self._drafters.update(found)
        self._plan()

    def limits(self) -> DraftLimits:
        self._pausing = self._pause > 0
        if self._pausing:
            self._pause -= 1
            return _PLAIN
        self._round, self._catch_up.tokens = _Round(), 0
        self._explored = "" if self._rounds % _SOONEST else self._to_explore()
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_catching_up(step)
        if step.nodes == 0 and not self._is_candidate(step):
            return False
        seen, drafter, token = self._round, self._round.drafter, step.offer.token
        if drafter is None:
            return False
        # A first token that is shown for nothing is compared with the text even if it cannot be
        # afforded; a draft model that may not draft is asked when a trial is due.
        asked = bool(step.nodes) or step.offer.costly
        if asked and not (self._affords(drafter, step.nodes) or self._probes(drafter, step.nodes)):
            return False
        if not (self._worth_a_peek(drafter, step) or self._probes(drafter, step.nodes)):
            return False
        bin_ = self._peek(drafter, step)
        pays = seen.reach * bin_.chance >= drafter.prices[step.nodes]
        if step.value is not None:
            pays = pays or self._probes(drafter, step.nodes)
        elif step.nodes == 0 and pays and not seen.probing and seen.best_rival > 0:
            pays = drafter.gain_from(bin_) >= seen.best_rival
        if pays and self._affords(drafter, step.nodes):
            seen.bins.append(bin_)
            seen.reach *= bin_.chance if step.value is None else 1.0
            return True
        seen.decline(drafter, step, bin_)
        if pays and not step.nodes and token is not None:
            self._stake.passed(token(), drafter.gain_from(bin_))
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
        offer = step.offer
        if offer.source not in self._drafters:
            self._drafters[offer.source] = DrafterEstimate(
                offer.source, self.draft_s if offer.costly else 0.0,
                branching=step.value is not None, copies=not offer.costly, at_once=offer.at_once,
            )  # fmt: skip
            self._plan()
        return self._drafters[offer.source]

    def _is_candidate(self, step: DraftStep) -> bool:
        """Return whether this drafter may draft, before it is peeked at."""
        seen, name = self._round, step.offer.source
        if self._explored and self._explored != name:
            return False
        drafter, before = self._drafter(step), seen.drafter
        if before is not None and seen.peeks:  # it drafts nothing
            seen.sunk_s += seen.peeks * before.peek_s.value
            before.learn_gain(-seen.peeks * before.peek_tokens)
        seen.query(drafter)
        if self._explored:
            seen.probing = True
            return True
        self._out_of_reach.discard(name)
        for other in step.offer.rivals:
            rival = self._drafters.get(other)
            if rival is None:
                self._due.setdefault(other, self._rounds)
            elif other not in self._out_of_reach:
                seen.best_rival = max(seen.best_rival, rival.gain)
        # One that copies is peeked at in any case: its very token may promise more.
        return drafter.copies or drafter.gain >= seen.best_rival or seen.best_rival <= 0

    def _to_explore(self) -> str:
        """Return a drafter that others keep from drafting, to be tried; mostly none."""
        for name, due in self._due.items():
            drafter = self._drafters.get(name)
            kept_away = drafter is None or not drafter.copies
            if kept_away and due <= self._rounds and name not in self._out_of_reach:
                return name
        return ""

    def _worth_catching_up(self, step: DraftStep) -> bool:
        drafter = self._drafter(step)
        gain = max(0.0, drafter.gain) * (1.0 if drafter.tried else _UNPROVEN)
        pays = self._catch_up.pays(step.behind, gain, 1 / self._costs.plain_s)
        if pays:
            self._catch_up.tokens = step.reads
        else:
            self._out_of_reach.add(step.offer.source)
        return pays

    # -- the next token ------------------------------------------------------------------------

    def _probes(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether to try a drafter despite a bad estimate, to check it."""
        if not drafted and self._due.get(drafter.name, 0) <= self._rounds:
            self._round.probing = True
        return self._round.probing and not drafted

    def _affords(self, drafter: DrafterEstimate, drafted: int) -> bool:
        """Return whether the text can afford one more token, with the peeks after the first."""
        return self._stake.affords(drafted, drafted * drafter.peek_tokens)

    def _worth_a_peek(self, drafter: DrafterEstimate, step: DraftStep) -> bool:
        seen, drafted = self._round, step.nodes
        if step.value is None:
            return drafter.worth_a_peek(drafted, seen.reach)
        # The confidence can only lower the value, and the first peek of a layer costs a pass.
        peek = drafter.peek_tokens if step.depth > seen.layer else 0.0
        return (
            not (drafted and seen.probing)
            and drafter.bin(step.value).chance >= drafter.prices[drafted] + peek
        )

    def _peek(self, drafter: DrafterEstimate, step: DraftStep) -> Bin:
        """Return the bin of the next token."""
        seen, value = self._round, step.value
        again = step.depth <= seen.layer or (step.nodes and drafter.at_once)
        seen.peeks, seen.layer = seen.peeks + (not again), step.depth
        bin_ = drafter.bin(step.offer.confidence() * (1.0 if value is None else value))
        bin_.met += 1
        return bin_

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
        """Account for what a round gained, which took the time of ``spent`` tokens."""
        seen, drafter = self._round, self._round.drafter
        gained = record.emitted - record.forced - 1 - spent
        self._stake.settle(record, gained)
        name = self._explored or ("" if drafter is None else drafter.name)
        if self._explored or seen.probing:
            # It waits until the allowance has paid for what the trial lost.
            rounds = max(-gained, 0.0) * len(self._drafters) / _ALLOWANCE
            self._due[name] = self._rounds + int(min(rounds, _LATEST))
        elif seen.bins:
            self._due[name] = self._rounds + 2 * _SOONEST
        if drafter is not None:
            own = spent - seen.sunk_s / self._costs.plain_s
            drafter.learn_gain(sum([bin_.chance for bin_ in seen.bins]) - own)

    def _ration(self, record: RoundRecord, plain_s: float) -> None:
        """Pause after rounds without a draft, if queries take noticeable time."""
        drafter = self._round.drafter
        if record.drafted or self._catch_up.tokens:
            self._idle = 0
            return
        self._idle += 1
        if drafter is None or drafter.copies:
            self._query_s.add(record.draft_s)
        if self._idle >= _PATIENCE:
            rounds = 2 * self._query_s.value / (_ALLOWANCE * plain_s)
            self._pause = min(max(0, int(rounds) - 1), self._idle)
            self._idle += self._pause

    def _plan(self) -> None:
        """Compute the prices of rows and drafters."""
        costs, price, plain_s = self._costs, self._costs.price, self._costs.plain_s
        self._stake.prices([seconds / plain_s for seconds in costs.steps()])
        for drafter in self._drafters.values():
            drafter.plan(costs, price)
