"""What is known of one drafter: how often it is right, what asking it costs, when to stop."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgedec.decoding.policy.cost import RunningMedian

# Confidences are sorted into bins; how often each bin is right is learned. In a chain a
# confidence is of the next token, in a tree of a whole path, which is often small.
CHAIN_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
TREE_EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)

_FORGET = 0.99
_FADE = 0.99
_PRIOR_WEIGHT = 3.0
# A new drafter is trusted a little less than it promises.
_TRUST = (3.0, 4.0)
# Chances are followed over about 100 tokens, and over 10 to notice a change of text.
_QUICK = 0.1
_CHANGED = 4.0
# Tokens a round that may be spent on trying a drafter that was given up.
_PROBE_ALLOWANCE = 0.004
_FIRST_CREDIT, _MOST_CREDIT = 0.2, 0.5
_LOOKAHEAD = 4
# Tokens that a draft must be worth beyond its cost: near the break-even, noise decides.
_MARGIN = 0.02

_Grid = npt.NDArray[np.float64]
# Chances that a drafted path is accepted so far; steps of 18%.
_REACH: _Grid = np.geomspace(0.005, 1.0, 32)


class Source:
    """Estimates and thresholds for one drafter.

    The chance that a token of some confidence is accepted is counted in bins, forgetting as
    it goes, and starts from a mild trust in the drafter. Evidence of a bin whose tokens are
    not drawn any more fades, so that every bin is tried again now and then.

    Args:
        depth: most tokens drafted a round.
        look_s: seconds that a look at the next token's confidence takes, at first.
        branching: the drafter makes trees.

    Attributes:
        look: seconds a look takes.
        chances: probability by bin that a token is accepted (in a tree: its whole path).
        peek: by tokens drafted so far, the least chance of reaching the next token at which
            to look at it.
        draw: likewise, the least chance at which to draw it, having looked.
        look_price: tokens that a look costs.
        start: expected tokens that this drafter adds to a round, net of their cost.

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
        self.look = RunningMedian(15, [look_s, look_s])
        self.peek = self.draw = [0.0] * depth
        self.start = self.look_price = 0.0
        self.first = [0.0] * len(middles)
        self._credit = _FIRST_CREDIT
        for place in range(len(middles)):
            self._estimate(place)

    def bin(self, confidence: float) -> int:
        """The bin of a confidence, which from now on counts as met."""
        place = bisect_right(self._edges, confidence)
        self._met[place] += 1
        return place

    def chance(self, confidence: float) -> float:
        """Chance of a token of this confidence; does not count as met."""
        return self.chances[bisect_right(self._edges, confidence)]

    def learn(self, place: int, *, accepted: bool) -> None:
        """A token of this bin was tried."""
        self._right = _FORGET * self._right + accepted
        self._promised = _FORGET * self._promised + self.prior[place]
        self._tries[place] = _FORGET * self._tries[place] + 1
        self._hits[place] = _FORGET * self._hits[place] + accepted
        self._quick[place] += _QUICK * (accepted - self._quick[place])
        self._notice_change(place)
        self._estimate(place)

    def fade(self, place: int) -> None:
        """A token of this bin was not drawn: what is known of it grows old."""
        self._tries[place] *= _FADE
        self._hits[place] *= _FADE
        self._estimate(place)

    def _notice_change(self, place: int) -> None:
        """Drop old evidence where the last ten tokens are at odds with it."""
        few, chance = 1 / _QUICK, self.chances[place]
        spread = math.sqrt(max(chance * (1 - chance), 0.02) / few)
        if self._tries[place] > few and abs(self._quick[place] - chance) > _CHANGED * spread:
            self._tries[place], self._hits[place] = few, few * self._quick[place]

    def _estimate(self, place: int) -> None:
        # What the other bins taught stands in for what this one has not yet.
        trust = self._right / self._promised
        expected = min(self.prior[place] * trust, 0.99)
        known = _PRIOR_WEIGHT * expected + self._hits[place]
        self.chances[place] = known / (_PRIOR_WEIGHT + self._tries[place])

    # -- probes: a drafter that is not asked any more is tried once in a while ---------------

    def probe_due(self) -> bool:
        """Count a round without this drafter; True when it may be tried again.

        Probes that fail wait until the allowance has paid for them; those that gain tokens
        pay for more, so that a drafter that has become good is soon believed.
        """
        self._credit += _PROBE_ALLOWANCE
        return self._credit >= 0

    def probed(self, lost: float) -> None:
        """A probe cost so many tokens; less than 0 when it gained some."""
        self._credit = min(self._credit - lost, _MOST_CREDIT)

    # -- thresholds --------------------------------------------------------------------------

    def plan(self, price: float, seconds: Sequence[float], extra_s: float) -> None:
        """Thresholds that maximise tokens less ``price`` times seconds.

        Args:
            price: tokens a second that decoding makes anyway, what a second is worth.
            seconds: of a target pass over 1, 2, ... ``depth + 1`` rows.
            extra_s: seconds a round with a draft takes beside passes, beyond a plain one.

        """
        steps = [price * (b - a) for a, b in itertools.pairwise(seconds)]
        steps[0] += price * extra_s + _MARGIN
        self.look_price = price * self.look.value
        if self.branching:
            self._plan_tree(steps)
        else:
            self._plan_chain(steps, self.look_price)
        met = sum(self._met)
        if met > 128:
            self._met = [count * 64 / met for count in self._met]

    def _plan_chain(self, steps: Sequence[float], look: float) -> None:
        """Backward over draft lengths: the value of a state is a function of its reach.

        Drawing token k + 1 on a path of reach x (its own chance included) is worth
        x - steps[k] plus what can follow; looking is worth the mean of that over the
        confidences met, where positive, less the look. Both grow with x, so one threshold
        each is the whole policy; a curve that dips is seen through what follows.
        """
        chances = np.array(self.chances)
        weights = np.array(self._met) / sum(self._met)
        later = np.outer(chances, _REACH)
        value = np.zeros_like(_REACH)
        peek, draw = [0.0] * len(steps), [0.0] * len(steps)
        for k in range(len(steps) - 1, -1, -1):
            drawn = _REACH - steps[k] + value
            draw[k] = _crossing(drawn)
            looked = weights @ np.interp(later, _REACH, np.maximum(drawn, 0)) - look
            peek[k] = _crossing(looked)
            value = np.maximum(looked, 0)
        self.peek, self.draw = peek, draw
        self.start = float(looked[-1])
        self.first = np.interp(chances, _REACH, drawn).tolist()

    def _plan_tree(self, steps: Sequence[float]) -> None:
        """A node is worth its chance; a few of a kind share a step of the curve."""
        self.draw = []
        for k in range(len(steps)):
            ahead = np.cumsum(steps[k : k + _LOOKAHEAD]) / np.arange(1, len(steps) - k + 1)[:4]
            self.draw.append(float(ahead.min()))


def _crossing(worth: _Grid) -> float:
    """The reach at which a growing function turns positive; inf when it never does."""
    place = int(np.argmax(worth > 0))
    above = float(worth[place])
    if above <= 0:
        return math.inf
    if place == 0:
        return 0.0
    low, high, below = float(_REACH[place - 1]), float(_REACH[place]), float(worth[place - 1])
    return low + (high - low) * -below / (above - below)
