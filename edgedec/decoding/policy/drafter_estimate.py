"""Estimates of one drafter: how often it is right, what a peek costs, what a draft gains."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedec.decoding.policy.cost import LONG, CostCurve, LiveCost, RunningMedian
from edgedec.errors import SnapshotError

# Confidences are sorted into bins, and the acceptance of each bin is learned. In a chain a
# confidence is of the next token, in a tree of a whole path, which is often small. Bins are narrow
# where prices lie: most drafts are sure of most tokens. Eight, so that each soon has evidence.
CHAIN_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
TREE_EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)

# Acceptance is averaged over about 100 tokens of a bin; a bin no longer drawn is forgotten as fast.
_FORGET = 0.99
# What was known before a text counts as this many tokens of it. Few: texts differ more than a
# text's parts.
_PRIOR_WEIGHT = 4.0
# Tokens that a prior is trusted for before a text has judged it, of any bin.
_TRUST = 3.0
# A text changes the knowledge kept for later texts by a third at most, however long it is.
_TEXT_WEIGHT, _KNOWN_WEIGHT = 16.0, 32.0
# A second average, over 10 tokens, notices a change of text: when the two are four standard errors
# of ten draws apart, which chance alone does to one bin in 16,000.
_RECENT, _CHANGED = 10.0, 4.0
# Tokens that a draft must be worth beyond its cost: near break-even, noise decides. This is two
# percent of plain decoding's speed.
_MARGIN = 0.02
# The rate at which a branching drafter's gain is learned.
_GAIN_RATE = 0.1
# Rows over which a price is shared: kernels take rows by fours at most.
_LOOKAHEAD = 4
# Counts of how often each bin is met fade by this at each plan, so that they follow the text.
_MET_KEPT = 0.95


@dataclass(slots=True)
class Bin:
    """The tokens of one drafter whose confidence lies within certain bounds.

    Attributes:
        prior: share accepted in earlier texts, or what the drafter claims.
        chance: probability that a token is accepted (in a tree: its whole path).
        recent: share accepted of the last ten or so.
        tries, hits: how many were tried in this text and accepted, old ones with less weight.
        met: how often such a token is met, drawn or not.

    """

    prior: float
    chance: float = 0.0
    recent: float = 0.0
    tries: float = 0.0
    hits: float = 0.0
    met: float = 0.2


def _prior(confidence: float, *, branching: bool, copies: bool) -> float:
    """Return the chance that a new drafter's token of some confidence is accepted.

    Measured for drafters that copy, at temperatures of 0 to 1: what follows an earlier copy of two
    tokens, at a confidence of 0.73, is right in 0.40 to 0.61; of eight, at 0.91, in 0.85 to 0.90;
    and the token that was last ranked first, at 0.5, in 0.36 to 0.57 or fewer.
    """
    if branching:
        return confidence
    return confidence**2 if copies else 0.1 + 0.85 * confidence


class DrafterEstimate:
    """Estimates for one drafter, and the prices of what it drafts.

    The chance that a token of some confidence is accepted is an exponential average per bin. A text
    begins with the estimates of earlier texts, which it updates when it ends. Evidence of a bin
    whose tokens are no longer drawn fades, so that every bin is tried again occasionally.

    Args:
        peek_s: seconds that a peek at the next token's confidence takes, initially.
        branching: the drafter makes trees.
        copies: its confidences are not a model's.
        at_once: only its first peek of a round takes time.

    Attributes:
        peek_s: seconds of a peek, and ``peek_tokens``, the tokens it costs.
        prices: by tokens drafted so far, the least chance at which the next one is worth its row.
        gain: expected tokens that this drafter adds to a round, net of their cost.
        tried: whether any of its tokens was compared with this text.

    """

    def __init__(
        self, name: str, peek_s: float, *, branching: bool, copies: bool = False,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.branching, self.copies, self.at_once = name, branching, copies, at_once
        self._edges = TREE_EDGES if branching else CHAIN_EDGES
        middles = [(low + high) / 2 for low, high in itertools.pairwise((0.0, *self._edges, 1.0))]
        self.bins = [Bin(_prior(one, branching=branching, copies=copies)) for one in middles]
        self.peek_s = RunningMedian(LONG, [peek_s, peek_s])
        self.peek_tokens = 0.0
        self.prices: list[float] = []
        self._worth: list[tuple[float, float]] = []
        self.gain = 0.0
        self._forget_text()

    def begin(self) -> None:
        """Begin another text: what this one taught is kept for later texts."""
        for bin_ in self.bins:
            weight = min(bin_.tries, _TEXT_WEIGHT)
            if weight:
                moved = weight / (weight + _KNOWN_WEIGHT)
                bin_.prior += moved * (bin_.hits / bin_.tries - bin_.prior)
        self._forget_text()

    def learned(self) -> dict[str, Any]:
        """Return the learned estimates as JSON; called between texts."""
        self.begin()
        return {"branching": self.branching, "chances": [bin_.prior for bin_ in self.bins]}

    def learn_from(self, learned: dict[str, Any]) -> None:
        """Begin with what ``learned`` returned; SnapshotError if it is something else."""
        chances = learned.get("chances")
        if not (
            isinstance(chances, list)
            and len(chances) == len(self.bins)
            and all(isinstance(chance, (int, float)) and 0 <= chance <= 1 for chance in chances)
        ):
            raise SnapshotError("the saved acceptance rates are damaged: save the text again")
        for bin_, chance in zip(self.bins, chances, strict=True):
            bin_.prior = float(chance)
        self._forget_text()

    def _forget_text(self) -> None:
        self.tried, self._right, self._promised = False, _TRUST, _TRUST
        for bin_ in self.bins:
            bin_.tries = bin_.hits = 0.0
            bin_.chance = bin_.recent = bin_.prior
            self._estimate(bin_)

    def bin(self, confidence: float) -> Bin:
        return self.bins[bisect_right(self._edges, confidence)]

    def learn(self, bin_: Bin, *, accepted: bool) -> None:
        """Learn from a token of this bin that was compared with the text."""
        self.tried = True
        self._right = _FORGET * self._right + accepted
        self._promised = _FORGET * self._promised + bin_.prior
        bin_.tries = _FORGET * bin_.tries + 1
        bin_.hits = _FORGET * bin_.hits + accepted
        bin_.recent += (accepted - bin_.recent) / _RECENT
        variance = max(bin_.chance * (1 - bin_.chance), 0.02) / _RECENT
        if bin_.tries > _RECENT and (bin_.recent - bin_.chance) ** 2 > _CHANGED**2 * variance:
            bin_.tries, bin_.hits = _RECENT, _RECENT * bin_.recent
        self._estimate(bin_)

    def fade(self, bin_: Bin) -> None:
        """Fade the evidence of a bin whose token was not drawn."""
        bin_.tries *= _FORGET
        bin_.hits *= _FORGET
        self._estimate(bin_)

    def _estimate(self, bin_: Bin) -> None:
        # The other bins stand in for what this one has not yet shown.
        expected = min(bin_.prior * self._right / self._promised, 0.99)
        bin_.chance = (_PRIOR_WEIGHT * expected + bin_.hits) / (_PRIOR_WEIGHT + bin_.tries)

    def learn_gain(self, tokens: float) -> None:
        """Record what a round is expected to have added; a chain's gain is computed instead."""
        if self.branching:
            self.gain += _GAIN_RATE * (tokens - self.gain)

    # -- prices ------------------------------------------------------------------------------

    def plan(self, costs: LiveCost, price: float) -> None:
        """Compute the prices of rows and peeks, and what a draft gains, at tokens per second."""
        steps = [price * seconds for seconds in costs.steps()]
        steps[0] += _MARGIN
        self.peek_tokens = price * self.peek_s.value
        if self.branching:
            self.prices = _prices(steps)
            return
        met = right = squares = 0.0
        for bin_ in self.bins:
            met += bin_.met
            right += bin_.met * bin_.chance
            squares += bin_.met * bin_.chance * bin_.chance
        peek = 0.0 if self.at_once else self.peek_tokens
        # A token after one that was accepted is mostly one of the likely ones, too.
        self.prices = _prices(steps, squares / right, peek)
        drawn = right = 0.0
        for bin_ in self.bins:
            if bin_.chance >= self.prices[0]:
                drawn += bin_.met
                right += bin_.met * bin_.chance
        self._worth = _worth(steps, right / met, peek, drawn / met)
        gain = 0.0
        for bin_ in self.bins:
            gain += bin_.met * self.gain_from(bin_)
            bin_.met *= _MET_KEPT
        self.gain = gain / met - self.peek_tokens

    def gain_from(self, bin_: Bin) -> float:
        """Return the tokens that a draft adds if its first token is of this bin."""
        best = max(self.gain, 0.0) if self.branching else 0.0
        for reached, cost in self._worth:
            best = max(best, bin_.chance * reached - cost)
        return best

    def worth_a_peek(self, drafted: int, reach: float) -> bool:
        """Return whether to look at the next token of a chain, reached with this chance."""
        price, gained, met = self.prices[drafted], 0.0, 0.0
        for bin_ in self.bins:
            met += bin_.met
            gained += bin_.met * max(0.0, reach * bin_.chance - price)
        return gained > (0.0 if drafted and self.at_once else self.peek_tokens * met)


def _worth(
    steps: Sequence[float], usual: float, peek: float, share: float = 1.0
) -> list[tuple[float, float]]:
    """Return what 1, 2, ... further tokens are worth, and cost.

    Of a first token whose chance is c, ``c * reached - cost`` is what so many are expected to gain.
    All but the first are peeked at before and drawn with a chance of ``share``, drawn and accepted
    with one of ``usual``.
    """
    found: list[tuple[float, float]] = []
    reach, reached, cost, drawn = 1.0, 0.0, -peek, 1.0
    for step in steps:
        cost += drawn * peek
        drawn *= share if found else 1.0
        reached, cost, reach = reached + reach, cost + drawn * step, reach * usual
        found.append((reached, cost))
    return found


def _prices(steps: Sequence[float], usual: float = 1.0, peek: float = 0.0) -> list[float]:
    """Return for each token the chance from which on it and some after it are worth their cost."""
    spans = (_worth(steps[k : k + _LOOKAHEAD], usual, peek) for k in range(len(steps)))
    return [min(cost / reached for reached, cost in span) for span in spans]


# Halvings of the interval in which the speed lies: to a thousandth of plain decoding's speed.
_HALVINGS = 15


def expected_rate(target: CostCurve, draft_s: float, most: int = 16) -> float:
    """Return the tokens per second that ``MeasuredCost`` expects with a draft model.

    The draft model is taken to be as good as a new one claims to be. Each round drafts where that
    pays by these costs. The speed is the price of a second at which a round is worth its time.

    Args:
        target: seconds of a target pass by its rows.
        draft_s: seconds of a draft model's pass over one row.
        most: most drafted tokens of a round.

    """
    drafter = DrafterEstimate("model", draft_s, branching=False)
    costs = LiveCost(target, most)
    low, high = 1 / target.at(1), (most + 1) / min(target.seconds)
    for _ in range(_HALVINGS):
        price = (low + high) / 2
        drafter.plan(costs, price)
        # Expected tokens of a round, less those that its time yields at this price.
        if 1 + max(drafter.gain, 0.0) > price * target.at(1):
            low = price
        else:
            high = price
    return low
