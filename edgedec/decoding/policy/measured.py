"""The default: draft while the next token is worth more than the time it costs."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import CostCurve, LiveCost, RunningMedian
from edgedec.decoding.policy.source import Source

_FORGET = 0.97
# Thresholds are computed anew once this many seconds of decoding have passed, so that it
# takes about 1% of the time; and after 1, 2, 4, ... rounds.
_PLAN_EVERY_S = 0.05

# A drafter, how many tokens it had drafted, the bin and the token that it would have drawn.
_Declined = tuple[Source, int, int, int]


class MeasuredCost:
    """Maximises tokens per second by measured costs and measured acceptance.

    A round that drafts d tokens takes T(d + 1) + d looks, T a measured curve, kept true as
    decoding goes. For each drafter the policy learns how often a token is accepted given the
    draft's confidence in it, and by dynamic programming over the draft length computes when
    looking at the next token, and when drawing it, pays: when it adds more tokens than the
    same time makes otherwise (Dinkelbach's method for a ratio). Drafting nothing is a legal
    answer; a drafter that is left out is tried again after pauses that double.

    Args:
        target: seconds of a target pass by its rows, from ``calibrate``.
        draft_s: seconds of a draft model's pass over one row; None where there is none.
        most: drafted tokens in a round at most.

    """

    name = "measured"

    def __init__(self, target: CostCurve, draft_s: float | None = None, most: int = 16) -> None:
        self._cost = LiveCost(target, most + 1)
        self._draft_s = draft_s or 0.0
        self._limits = DraftLimits(most, most)
        self._sources: dict[str, Source] = {}
        self._overheads: dict[str, RunningMedian] = {}
        # What a round brought lately; starts as a few plain rounds.
        self._tokens, self._seconds = 5.0, 5 * self._cost.at(1)
        self._rounds = self._plan_at = 0
        self._since_plan_s = 0.0
        self._asked: Source | None = None
        self._declined: list[_Declined] = []
        self._start_round()

    def begin(self, remaining: int) -> None:
        self._start_round()

    def limits(self) -> DraftLimits:
        self._asked = None
        self._declined = []
        self._start_round()
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        drafted = step.nodes
        if step.behind:
            return True
        if drafted == 0:
            self._asked = self._source(step.source, branching=step.value is not None)
            self._start_round()
        source = self._asked
        if source is None or drafted >= self._limits.nodes:
            return False
        if step.value is not None:
            return self._go_on_branching(source, step, step.value)
        if self._reach < source.peek[drafted] and not self._try_again(source, drafted):
            return False
        self._looks += 1
        place = source.bin(step.confidence())
        chance = source.chances[place]
        if self._probing and not drafted:
            chance = max(chance, source.prior[place])
        if self._reach * chance < source.draw[drafted] or self._rival_wins(step, place):
            self._decline(source, step, place)
            return False
        self._reach *= source.chances[place]
        self._bins.append(place)
        return True

    def observe(self, record: RoundRecord) -> None:
        self._cost.observe(record.rows, record.target_s)
        source = self._asked
        if source is not None and self._looks:
            source.look.add(record.draft_s / self._looks)
        if source is not None and self._bins:
            self._learn(source, record)
        self._learn_from_declined(record)
        name = record.source if record.drafted else ""
        overhead = self._overhead(name)
        overhead.add(record.total_s - record.target_s - record.draft_s)
        looks_s = self._looks * source.look.value if source is not None else 0.0
        if source is not None and self._probing:
            lost_s = self._cost.at(record.rows) - self._cost.at(1) + looks_s
            source.probed(lost_s / self._cost.at(1) - (record.emitted - 1))
        # Modelled, not measured: one long pause must not look like a slow policy.
        seconds = self._cost.at(min(record.rows, self._limits.nodes + 1)) + looks_s + overhead.value
        self._tokens = _FORGET * self._tokens + record.emitted
        self._seconds = _FORGET * self._seconds + seconds
        self._rounds += 1
        self._since_plan_s += seconds
        if self._since_plan_s > _PLAN_EVERY_S or self._rounds >= self._plan_at:
            self._plan()

    def _start_round(self) -> None:
        self._reach = 1.0
        self._bins: list[int] = []
        self._looks, self._layer = 0, -1
        self._probing = False

    def _source(self, name: str, *, branching: bool) -> Source:
        source = self._sources.get(name)
        if source is None:
            source = Source(self._limits.nodes, self._draft_s, branching=branching)
            self._sources[name] = source
            self._plan_one(name)
        return source

    def _go_on_branching(self, source: Source, step: DraftStep, value: float) -> bool:
        drafted = step.nodes
        if self._probing and drafted:
            return False
        bar = source.draw[drafted]
        # The confidence can only lower the value, and a new layer's first costs a pass.
        new_layer = step.depth > self._layer
        look = source.look_price if new_layer else 0.0
        if source.chance(value) < bar + look and not self._try_again(source, drafted):
            return False
        if new_layer:
            self._layer = step.depth
            self._looks += 1
        place = source.bin(value * step.confidence())
        if source.chances[place] < bar and not self._probing:
            source.fade(place)
            if not self._try_again(source, drafted):
                return False
        self._bins.append(place)
        return True

    def _try_again(self, source: Source, drafted: int) -> bool:
        """Whether to draft against the odds, to see whether they still hold."""
        if drafted == 0 and not self._probing:
            self._probing = source.probe_due()
        return self._probing and drafted == 0

    def _rival_wins(self, step: DraftStep, place: int) -> bool:
        """Whether the drafter that is asked next would do better."""
        if self._asked is None or not step.rivals or step.nodes:
            return False
        rival = self._source(step.rivals[0], branching=False)
        return self._asked.first[place] < rival.start

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
        if step.token is None:
            source.fade(place)
        else:
            self._declined.append((source, step.nodes, place, step.token()))

    def _learn_from_declined(self, record: RoundRecord) -> None:
        """The text says whether a token that was not drafted would have been right."""
        for source, drafted, place, token in self._declined:
            # Only known where the text went along with what was drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                source.learn(place, accepted=record.tokens[drafted] == token)

    def _overhead(self, name: str) -> RunningMedian:
        known = self._overheads.get(name)
        if known is None:
            known = self._overheads[name] = RunningMedian(15, [0.0])
        return known

    def _plan(self) -> None:
        for name in self._sources:
            self._plan_one(name)
        self._since_plan_s = 0.0
        self._plan_at = 2 * self._rounds + 1

    def _plan_one(self, name: str) -> None:
        most = self._limits.nodes
        seconds = [self._cost.at(rows) for rows in range(1, most + 2)]
        plain = self._overhead("").value
        # A second is worth what decoding makes of it, and never less than plain decoding.
        price = max(self._tokens / self._seconds, 1 / (seconds[0] + plain))
        extra_s = max(0.0, self._overhead(name).value - plain)
        self._sources[name].plan(price, seconds, extra_s)
