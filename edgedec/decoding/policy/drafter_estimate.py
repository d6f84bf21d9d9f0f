"""Estimates of one drafter: how often it is right, what a look costs, when to stop."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from edgedec.decoding.policy import thresholds
from edgedec.decoding.policy.cost import RunningMedian
from edgedec.errors import SnapshotError

# Confidences are sorted into bins, and the acceptance of each bin is learned. In a chain a
# confidence is of the next token, in a tree of a whole path, which is often small.
CHAIN_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
TREE_EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)

_FORGET = 0.99
_FADE = 0.99
# What was known before a text counts as this many tokens of it; more, the more texts.
_PRIOR_WEIGHT, _MOST_PRIOR_WEIGHT = 3.0, 8.0
# A new drafter is trusted slightly less than it claims, one known from earlier texts by what it
# achieved there; both are soon judged by the current text.
_TRUST = (3.0, 4.0)
_TRUST_KNOWN = (3.0, 3.0)
# A text changes the knowledge kept for later texts by a third at most, however long it is.
_TEXT_WEIGHT, _KNOWN_WEIGHT = 16.0, 32.0
# Acceptance is averaged over about 100 tokens, and over 10 to notice a change of text.
_QUICK = 0.1
_CHANGED = 4.0
# Tokens per round that may be spent on probing a drafter that was given up.
_PROBE_ALLOWANCE = 0.002
_FIRST_CREDIT, _MOST_CREDIT = 0.0, 0.5
# Tokens that a draft must be worth beyond its cost: near break-even, noise decides.
_MARGIN = 0.02
# Most tokens drafted before any was right in a text, and how many more for each that was.
_TENTATIVE, _GROWTH = 2, 2
# Tokens that a new branching drafter is assumed to add to a round, and the learning rate.
_UNTRIED, _GAIN_QUICK = 0.1, 0.1


class DrafterEstimate:
    """Estimates and thresholds for one drafter.

    The chance that a token of some confidence is accepted is an exponential average per bin. A text
    begins with the estimates of earlier texts, which it updates when it ends; the first begins with
    mild trust in the drafter. Evidence of a bin whose tokens are no longer drawn fades, so that
    every bin is tried again occasionally.

    Args:
        depth: most tokens drafted per round.
        look_s: seconds that a look at the next token's confidence takes, initially.
        branching: the drafter makes trees.

    Attributes:
        look: calibrated seconds of a look.
        chances: probability by bin that a token is accepted (in a tree: its whole path).
        peek: by tokens drafted so far, the least chance of reaching the next token at which
            to look at it.
        draw: likewise, the least chance at which to draw it, having looked.
        look_price: tokens that a look costs.
        start: expected tokens that this drafter adds to a round, net of their cost.
        first: likewise by bin of the first token, its look apart.
        most: most tokens to draft: a drafter must be right before it may draft more.
        stale: the thresholds lack what was learned since.

    """

    def __init__(self, depth: int, look_s: float, *, branching: bool) -> None:
        self.branching = branching
        self._edges = TREE_EDGES if branching else CHAIN_EDGES
        bounds = (0.0, *self._edges, 1.0)
        middles = [(low + high) / 2 for low, high in itertools.pairwise(bounds)]
        self.prior = middles if branching else [0.1 + 0.85 * middle for middle in middles]
        self.chances = list(self.prior)
        self._tries = [0.0] * len(middles)
        self._hits = [0.0] * len(middles)
        self._quick = list(self.prior)
        self._met = [0.2] * len(middles)
        self._right, self._promised = _TRUST
        self._weight = _PRIOR_WEIGHT
        self.look = RunningMedian(15, [look_s, look_s])
        self.peek = self.draw = [0.0] * depth
        self.look_price = 0.0
        self.start = _UNTRIED if branching else 0.0
        self.first = [0.0] * len(middles)
        self._credit = _FIRST_CREDIT
        self.most = _TENTATIVE
        self.stale = True
        for place in range(len(middles)):
            self._estimate(place)

    def begin(self) -> None:
        """Begin another text: what this one taught is kept for later texts."""
        if not any(self._tries):
            return
        for place, tries in enumerate(self._tries):
            weight = min(tries, _TEXT_WEIGHT)
            if weight:
                moved = weight / (weight + _KNOWN_WEIGHT)
                self.prior[place] += moved * (self._hits[place] / tries - self.prior[place])
            self._tries[place] = self._hits[place] = 0.0
        self._quick = list(self.prior)
        self._right, self._promised = _TRUST_KNOWN
        self.most = _TENTATIVE
        self._weight = min(self._weight + 1, _MOST_PRIOR_WEIGHT)
        for place in range(len(self.prior)):
            self._estimate(place)

    def learned(self) -> dict[str, Any]:
        """Return what texts so far have taught, as JSON; called between texts."""
        self.begin()
        return {"branching": self.branching, "chances": self.prior, "weight": self._weight}

    def learn_from(self, learned: dict[str, Any]) -> None:
        """Begin with what ``learned`` returned; SnapshotError if it is something else."""
        chances, weight = learned.get("chances"), learned.get("weight")
        if not (
            isinstance(chances, list)
            and len(chances) == len(self.prior)
            and all(isinstance(chance, (int, float)) and 0 <= chance <= 1 for chance in chances)
            and isinstance(weight, (int, float))
            and 0 < weight <= _MOST_PRIOR_WEIGHT
        ):
            raise SnapshotError("the saved acceptance rates are damaged: save the text again")
        self.prior, self._weight = [float(chance) for chance in chances], float(weight)
        self._right, self._promised = _TRUST_KNOWN
        self._quick = list(self.prior)
        for place in range(len(self.prior)):
            self._estimate(place)

    @property
    def tried(self) -> bool:
        """Return whether this text has taught anything about it."""
        return any(self._tries)

    def bin(self, confidence: float) -> int:
        """Return the bin of a confidence, and count it as met."""
        place = bisect_right(self._edges, confidence)
        self._met[place] += 1
        return place

    def chance(self, confidence: float) -> float:
        """Return the chance of a token of this confidence, without counting it as met."""
        return self.chances[bisect_right(self._edges, confidence)]

    def learn(self, place: int, *, accepted: bool) -> None:
        """Learn from a token of this bin that was drafted."""
        self.most += _GROWTH * accepted
        self._right = _FORGET * self._right + accepted
        self._promised = _FORGET * self._promised + self.prior[place]
        self._tries[place] = _FORGET * self._tries[place] + 1
        self._hits[place] = _FORGET * self._hits[place] + accepted
        self._quick[place] += _QUICK * (accepted - self._quick[place])
        self._notice_change(place)
        self._estimate(place)

    def fade(self, place: int) -> None:
        """Fade the evidence of a bin whose token was not drawn."""
        self._tries[place] *= _FADE
        self._hits[place] *= _FADE
        self._estimate(place)

    def _notice_change(self, place: int) -> None:
        """Drop old evidence if the last ten tokens contradict it."""
        few, chance = 1 / _QUICK, self.chances[place]
        spread = math.sqrt(max(chance * (1 - chance), 0.02) / few)
        if self._tries[place] > few and abs(self._quick[place] - chance) > _CHANGED * spread:
            self._tries[place], self._hits[place] = few, few * self._quick[place]

    def _estimate(self, place: int) -> None:
        # The other bins stand in for what this one has not yet shown.
        trust = self._right / self._promised
        expected = min(self.prior[place] * trust, 0.99)
        known = self._weight * expected + self._hits[place]
        self.chances[place] = known / (self._weight + self._tries[place])
        self.stale = True

    # -- probes: a drafter that was dropped is tried again occasionally -------------------------

    def wait(self, rounds: float) -> None:
        """Count rounds without this drafter."""
        self._credit = min(self._credit + rounds * _PROBE_ALLOWANCE, _MOST_CREDIT)

    def probe_due(self) -> bool:
        """Return whether it may be tried again.

        Failed probes wait until the allowance has paid for them; probes that gain tokens pay for
        more, so that a drafter that has become good is soon used.
        """
        return self._credit >= 0

    def probed(self, lost: float) -> None:
        """Record the tokens a probe cost; negative if it gained some."""
        self._credit = min(self._credit - lost, _MOST_CREDIT)

    def gained(self, tokens: float) -> None:
        """Record what a round that asked a branching drafter is expected to have added."""
        self.start += _GAIN_QUICK * (tokens - self.start)

    # -- thresholds --------------------------------------------------------------------------

    def plan(self, price: float, seconds: Sequence[float], extra_s: float) -> None:
        """Compute the thresholds that maximise tokens less ``price`` times seconds.

        Args:
            price: tokens per second that decoding makes anyway, the value of a second.
            seconds: of a target pass over 1, 2, ... ``depth + 1`` rows.
            extra_s: additional seconds, outside passes, of a round with a draft.

        """
        steps = [price * (b - a) for a, b in itertools.pairwise(seconds)]
        steps[0] += price * extra_s + _MARGIN
        self.look_price = price * self.look.value
        if self.branching:
            self.draw = thresholds.tree(steps)
        else:
            best = thresholds.chain(self.chances, self._met, steps, self.look_price)
            self.peek, self.draw = best.peek, best.draw
            self.start, self.first = best.start, best.first
        met = sum(self._met)
        if met > 128:
            self._met = [count * 64 / met for count in self._met]
        self.stale = False
