"""The default: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import CostCurve
from edgedec.decoding.policy.pace import Pace
from edgedec.decoding.policy.rates import Rates
from edgedec.decoding.policy.reading import Reading
from edgedec.decoding.policy.source import Source
from edgedec.decoding.policy.turns import Turns

_FORGET = 0.97
# Thresholds are computed anew once this many seconds of decoding have passed, so that it
# takes a fraction of a percent of the time; and after 1, 2, 4, 7, ... rounds of a text.
_PLAN_EVERY_S = 0.05
# A look that costs no more tokens than this is taken before drafters are compared.
_CHEAP_LOOK = 0.1
# Tokens by which a drafter that is asked later must be better.
_LEAD = 0.1
_PLAIN = DraftLimits(0, 0)

# A drafter, how many tokens it had drafted, the bin and the token that it would have drawn.
_Declined = tuple[Source, int, int, int]


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    A round that drafts d tokens takes T(d + 1) + d looks, T a measured curve, kept true as
    decoding goes. For each drafter the policy learns how often a token is accepted given the
    draft's confidence in it, and by dynamic programming over the draft length computes when
    looking at the next token, and when drawing it, pays: when it adds more tokens than the
    same time makes otherwise (Dinkelbach's method for a ratio). Of several drafters the one
    drafts that is expected to add most. Drafting nothing is a legal answer; a drafter that is
    left out is tried again as far as an allowance goes, at the price of a look where that
    says enough. Where nothing is drafted for a while and asking shows in the time, rounds are
    plain without asking.

    Args:
        target: seconds of a target pass by its rows, from ``calibrate``.
        draft_s: seconds of a draft model's pass over one row; None where there is none.
        most: drafted tokens in a round at most.

    Attributes:
        draft_s: as given; 0 where there is no draft model.

    """

    name = "measured"

    def __init__(self, target: CostCurve, draft_s: float | None = None, most: int = 16) -> None:
        self._rates = Rates(target, most)
        self.draft_s = draft_s or 0.0
        self._limits = DraftLimits(most, most)
        self._sources: dict[str, Source] = {}
        self._turns = Turns()
        self._gain = 0.0
        self._turn: str | None = None
        # Drafters that have too much to read to be of use in this text.
        self._far: set[str] = set()
        self._rounds = self._plan_at = self._waited = 0
        self._resting = False
        self._since_plan_s = 0.0
        self._pace, self._reading = Pace(), Reading(self.draft_s)
        self._start_round()

    @property
    def lone_row_s(self) -> float | None:
        return self._rates.lone_row_s

    @property
    def slowdown(self) -> float | None:
        return self._rates.mood

    def begin(self, remaining: int) -> None:
        self._start_round()
        self._rates.begin()
        for source in self._sources.values():
            source.begin()
        self._far.clear()
        self._pace.begin()
        self._reading.begin(remaining)
        self._rounds = self._plan_at = 0
        self._plan()

    def limits(self) -> DraftLimits:
        self._resting = self._pace.rest()
        if self._resting:
            return _PLAIN
        self._start_round()
        self._turn = self._turns.next(self._sources, self._far, self._gain, _CHEAP_LOOK)
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return self._worth_reading(step)
        drafted = step.nodes
        if drafted == 0 and not self._opened(step):
            return False
        source = self._asked
        if source is None or drafted >= min(self._limits.nodes, source.most):
            return False
        if step.value is not None:
            return self._go_on_branching(source, step, step.value)
        if self._reach < source.peek[drafted] and not self._try_again(source, drafted):
            return False
        self._looks += 1
        place = source.bin(step.offer.confidence())
        chance = source.chances[place]
        if self._probing and not drafted and step.offer.token is None:
            chance = max(chance, source.prior[place])
        if self._reach * chance < source.draw[drafted] or self._rival_wins(step, place):
            self._decline(source, step, place)
            return False
        self._reach *= source.chances[place]
        self._bins.append(place)
        return True

    def observe(self, record: RoundRecord) -> None:
        self._reading.round(record.emitted)
        self._rounds += 1
        self._waited += 1
        if self._resting:
            return  # what little there is to learn is not worth the time
        source, looks_s = self._asked, self._learn_look(record)
        if source is not None and self._bins:
            self._learn(source, record)
        self._learn_from_declined(record)
        seconds = self._rates.observe(record, looks_s)
        plain_s = self._rates.plain_s
        self._account(record, seconds / plain_s - 1)
        looked = looks_s > _CHEAP_LOOK * plain_s
        self._pace.observe(record, plain_s, looked=looked)
        self._since_plan_s += seconds
        if self._since_plan_s > _PLAN_EVERY_S or self._rounds >= self._plan_at:
            self._plan()

    def _start_round(self) -> None:
        self._asked: Source | None = None
        self._turn = None
        self._declined: list[_Declined] = []
        self._sunk_s = 0.0
        self._reading.tokens = 0
        self._open()

    def _open(self) -> None:
        """Nothing drafted yet by the drafter that is asked now."""
        self._reach = 1.0
        self._bins: list[int] = []
        self._looks, self._layer = 0, -1
        self._best = 0.0
        self._probing = False

    def _source(self, step: DraftStep) -> Source:
        name = step.offer.source
        source = self._sources.get(name)
        if source is None:
            look_s = self.draft_s if step.offer.costly else 0.0
            source = Source(self._limits.nodes, look_s, branching=step.value is not None)
            self._sources[name] = source
            self._plan_one(name)
        return source

    # -- who drafts ----------------------------------------------------------------------------

    def _opened(self, step: DraftStep) -> bool:
        """Whether this drafter may be the one, before it is looked at."""
        if self._turn is not None and self._turn != step.offer.source:
            return False
        self._settle()
        self._open()
        source = self._asked = self._source(step)
        if self._turn is not None:
            self._probing = True
            return True
        self._far.discard(step.offer.source)
        for name in step.offer.rivals:
            if name in self._far:
                continue
            rival = self._sources.get(name)
            if rival is None:
                self._turns.meet(name)
            else:
                self._best = max(self._best, rival.start)
        return self._best <= 0 or source.look_price < _CHEAP_LOOK or source.start >= self._best

    def _settle(self) -> None:
        """The drafter that was asked before had its look, and drafts nothing."""
        before = self._asked
        if before is not None and self._looks:
            self._sunk_s += self._looks * before.look.value * self._rates.mood
            if before.branching:
                before.gained(-self._looks * before.look_price)

    def _rival_wins(self, step: DraftStep, place: int) -> bool:
        """Whether a drafter that is asked later would do better."""
        source = self._asked
        if source is None or step.nodes or self._probing:
            return False
        return source.first[place] + _LEAD < self._best

    def _worth_reading(self, step: DraftStep) -> bool:
        source = self._source(step)
        reads = self._reading.pays(step.behind, source, self._rates.mood / self._rates.plain_s)
        if not reads:
            self._far.add(step.offer.source)
        return reads

    def _go_on_branching(self, source: Source, step: DraftStep, value: float) -> bool:
        drafted = step.nodes
        if self._probing and drafted:
            return False
        if (
            drafted == 0
            and step.offer.costly
            and source.start < 0
            and not self._try_again(source, 0)
        ):
            return False  # even the best there may be is not worth the look
        bar = source.draw[drafted]
        # The confidence can only lower the value, and a new layer's first costs a pass.
        new_layer = step.depth > self._layer
        look = source.look_price if new_layer else 0.0
        if source.chance(value) < bar + look and not self._try_again(source, drafted):
            return False
        if new_layer:
            self._layer = step.depth
            self._looks += 1
        place = source.bin(value * step.offer.confidence())
        if source.chances[place] < bar and not self._probing:
            self._decline(source, step, place)
            if not self._try_again(source, drafted):
                return False
        self._bins.append(place)
        return True

    def _try_again(self, source: Source, drafted: int) -> bool:
        """Whether to draft against the odds, to see whether they still hold."""
        if drafted == 0 and not self._probing and source.probe_due():
            # The look is paid at once: another drafter may have the last word.
            source.probed(source.look_price)
            self._probing = True
        return self._probing and drafted == 0

    # -- what came of it -----------------------------------------------------------------------

    def _learn_look(self, record: RoundRecord) -> float:
        """Seconds the looks of this round took."""
        source, mood = self._asked, self._rates.mood
        if source is None:
            return 0.0
        if self._reading.tokens:
            read_s = record.draft_s - self._sunk_s - self._looks * source.look.value * mood
            self._reading.took(read_s / mood)
        elif self._looks and not self._sunk_s:
            source.look.add(record.draft_s / self._looks / mood)
        return self._sunk_s + self._looks * source.look.value * mood

    def _account(self, record: RoundRecord, spent: float) -> None:
        """Who was asked and who was not, and what it brought: ``spent`` is in tokens."""
        asked = self._asked
        self._turns.count(self._sources, asked if self._bins else None, self._waited)
        self._waited = 0
        gained = record.emitted - 1 - spent
        if self._turn in self._sources:
            self._sources[self._turn].probed(max(self._gain, 0.0) - gained)
        elif asked is not None and self._probing:
            asked.probed(-gained - self._looks * asked.look_price)
        if asked is None:
            return
        if asked.branching:
            own = spent - self._sunk_s / self._rates.plain_s
            asked.gained(sum([asked.chances[place] for place in self._bins]) - own)
        self._gain += (1 - _FORGET) * (gained - self._gain)

    def _learn(self, source: Source, record: RoundRecord) -> None:
        path = record.path or range(record.accepted + 1)
        accepted = len(path) - 1
        if source.branching:
            for node, place in enumerate(self._bins, 1):
                source.learn(place, accepted=node in path)
        else:
            # The first token that was rejected is known to be wrong; later ones are not.
            for depth, place in enumerate(self._bins[: accepted + 1]):
                source.learn(place, accepted=depth < accepted)

    def _decline(self, source: Source, step: DraftStep, place: int) -> None:
        if step.offer.token is None or (source.branching and step.nodes):
            source.fade(place)
        else:
            self._declined.append((source, step.nodes, place, step.offer.token()))

    def _learn_from_declined(self, record: RoundRecord) -> None:
        """The text says whether a token that was not drafted would have been right."""
        for source, drafted, place, token in self._declined:
            # Only known where the text went along with what was drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                source.learn(place, accepted=record.tokens[drafted] == token)

    def _plan(self) -> None:
        for name, source in self._sources.items():
            if source.stale:
                self._plan_one(name)
        self._since_plan_s = 0.0
        self._plan_at = self._rounds + self._rounds // 2 + 1

    def _plan_one(self, name: str) -> None:
        rates, mood = self._rates, self._rates.mood
        seconds = [seconds / mood for seconds in rates.seconds()]
        self._sources[name].plan(rates.price() * mood, seconds, rates.extra_s(name) / mood)
