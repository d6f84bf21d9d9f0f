"""Estimates of one drafter: how often it is right, what a peek costs, when to stop."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedec.decoding.policy import thresholds
from edgedec.decoding.policy.cost import LONG, RunningMedian
from edgedec.errors import SnapshotError

# Confidences are sorted into bins, and the acceptance of each bin is learned. In a chain a
# confidence is of the next token, in a tree of a whole path, which is often small. Bins are narrow
# where thresholds lie: most drafts are sure of most tokens. Eight, so that each soon has evidence.
CHAIN_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
TREE_EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)

# Acceptance is averaged over about 100 tokens of a bin; a bin no longer drawn is forgotten as fast.
_FORGET = 0.99
# What was known before a text counts as this many tokens of it; more, the more texts. Few: texts
# differ more than a text's parts.
_PRIOR_WEIGHT, _MOST_PRIOR_WEIGHT = 3.0, 8.0
# A new drafter is trusted slightly less than it claims, one known from earlier texts by what it
# achieved there; both are soon judged by the current text.
_TRUST = (3.0, 4.0)
_TRUST_KNOWN = (3.0, 3.0)
# Of what a tree of copies claims, this share is right.
_COPIED = 0.8
# A text changes the knowledge kept for later texts by a third at most, however long it is.
_TEXT_WEIGHT, _KNOWN_WEIGHT = 16.0, 32.0
# A second average, over 10 tokens, notices a change of text: when the two are four standard errors
# of ten draws apart, which chance alone does to one bin in 16,000.
_RECENT, _CHANGED = 10.0, 4.0
# Tokens per round that may be spent on probing a drafter that was given up: 0.2% of plain
# decoding's speed. Credit for later probes is bounded by a cheap probe's price.
_PROBE_ALLOWANCE = 0.002
_MOST_CREDIT = 0.5
# Tokens that a draft must be worth beyond its cost: near break-even, noise decides. This is two
# percent of plain decoding's speed.
_MARGIN = 0.02
# Most tokens drafted before any was right in a text, and how many more for each that was: a
# drafter that is never right costs two rows a round, one that is right reaches 16 in four rounds.
_TENTATIVE, _GROWTH = 2, 2
# Tokens that a new branching drafter is assumed to add to a round, and the learning rate.
_UNTRIED, _GAIN_RATE = 0.1, 0.1
# Thresholds are computed anew when a chance of acceptance has moved by so much.
_MOVED = 0.03
# Counts of how often each bin is met are halved at this sum, so that they follow the text.
_MOST_MET = 128


@dataclass(slots=True)
class Bin:
    """The tokens of one drafter whose confidence lies within certain bounds.

    Attributes:
        prior: share accepted in earlier texts, or what the drafter claims.
        chance: probability that a token is accepted (in a tree: its whole path).
        planned: that probability when the thresholds were computed.
        recent: share accepted of the last ten or so.
        tries, hits: how many were tried in this text and accepted, old ones with less weight.
        met: how often such a token is met, drawn or not.
        gain: expected tokens of a draft that begins with such a token, not counting its peek.

    """

    prior: float
    chance: float = 0.0
    planned: float = 0.0
    recent: float = 0.0
    tries: float = 0.0
    hits: float = 0.0
    met: float = 0.2
    gain: float = 0.0


def _prior(confidence: float, *, branching: bool, copies: bool) -> float:
    """Return the chance that a new drafter's token of some confidence is accepted.

    Measured for drafters that copy, at temperatures of 0 to 1: what follows an earlier copy of two
    tokens, at a confidence of 0.73, is right in 0.40 to 0.61; of eight, at 0.91, in 0.85 to 0.90;
    and the token that was last ranked first, at 0.5, in 0.36 to 0.57 or fewer.
    """
    if branching:
        return _COPIED * confidence if copies else confidence
    return confidence**2 if copies else 0.1 + 0.85 * confidence


class DrafterEstimate:
    """Estimates and thresholds for one drafter.

    The chance that a token of some confidence is accepted is an exponential average per bin. A text
    begins with the estimates of earlier texts, which it updates when it ends; the first begins with
    mild trust in the drafter. Evidence of a bin whose tokens are no longer drawn fades, so that
    every bin is tried again occasionally.

    Args:
        depth: most tokens drafted per round.
        peek_s: seconds that a peek at the next token's confidence takes, initially.
        branching: the drafter makes trees.
        copies: its confidences are not a model's.
        at_once: only its first peek of a round takes time.
        now: rounds decoded so far.

    Attributes:
        bins: by ascending confidence.
        peek_s: calibrated seconds of a peek, and ``peek_tokens``, the tokens it costs.
        peek_at: by tokens drafted so far, the least chance of reaching the next token at which
            to peek at it.
        draw_at: likewise, the least chance at which to draw it, having peeked.
        gain: expected tokens that this drafter adds to a round, net of their cost.
        longest: most tokens to draft: a drafter must be right before it may draft more.
        drafted_at: the round in which it drafted last.
        stale: the thresholds lack what was learned since; ``moved`` if that is worth computing
            them at once.

    """

    def __init__(
        self, depth: int, peek_s: float, *, branching: bool, copies: bool = False,
        at_once: bool = False, now: int = 0,
    ) -> None:  # fmt: skip
        self.branching, self.at_once, self.drafted_at = branching, at_once, now
        self._depth = depth
        self._edges = TREE_EDGES if branching else CHAIN_EDGES
        middles = [(low + high) / 2 for low, high in itertools.pairwise((0.0, *self._edges, 1.0))]
        self.bins = [Bin(_prior(one, branching=branching, copies=copies)) for one in middles]
        self._weight = _PRIOR_WEIGHT
        self.peek_s = RunningMedian(LONG, [peek_s, peek_s])
        self.peek_tokens = self._credit = 0.0
        self.peek_at = self.draw_at = [0.0] * depth
        self.gain = _UNTRIED if branching else 0.0
        self._forget_text(_TRUST)

    def begin(self) -> None:
        """Begin another text: what this one taught is kept for later texts."""
        if not self.tried:
            return
        for bin_ in self.bins:
            weight = min(bin_.tries, _TEXT_WEIGHT)
            if weight:
                moved = weight / (weight + _KNOWN_WEIGHT)
                bin_.prior += moved * (bin_.hits / bin_.tries - bin_.prior)
        self._weight = min(self._weight + 1, _MOST_PRIOR_WEIGHT)
        self._forget_text(_TRUST_KNOWN)

    def learned(self) -> dict[str, Any]:
        """Return the learned estimates as JSON; called between texts."""
        self.begin()
        chances = [bin_.prior for bin_ in self.bins]
        return {"branching": self.branching, "chances": chances, "weight": self._weight}

    def learn_from(self, learned: dict[str, Any]) -> None:
        """Begin with what ``learned`` returned; SnapshotError if it is something else."""
        chances, weight = learned.get("chances"), learned.get("weight")
        if not (
            isinstance(chances, list)
            and len(chances) == len(self.bins)
            and all(isinstance(chance, (int, float)) and 0 <= chance <= 1 for chance in chances)
            and isinstance(weight, (int, float))
            and 0 < weight <= _MOST_PRIOR_WEIGHT
        ):
            raise SnapshotError("the saved acceptance rates are damaged: save the text again")
        for bin_, chance in zip(self.bins, chances, strict=True):
            bin_.prior = float(chance)
        self._weight = float(weight)
        self._forget_text(_TRUST_KNOWN)

    def _forget_text(self, trust: tuple[float, float]) -> None:
        self._right, self._promised = trust
        self.longest = min(_TENTATIVE, self._depth)
        self.stale = self.moved = True
        for bin_ in self.bins:
            bin_.tries = bin_.hits = 0.0
            bin_.chance = bin_.planned = bin_.recent = bin_.prior
            self._estimate(bin_)

    @property
    def tried(self) -> bool:
        """Return whether any of its tokens were tried in this text."""
        return any(bin_.tries for bin_ in self.bins)

    def register(self, confidence: float) -> Bin:
        """Return the bin of a confidence, and count it as met."""
        bin_ = self.bin(confidence)
        bin_.met += 1
        return bin_

    def bin(self, confidence: float) -> Bin:
        """Return the bin of a confidence."""
        return self.bins[bisect_right(self._edges, confidence)]

    def learn(self, bin_: Bin, *, accepted: bool) -> None:
        """Learn from a token of this bin that was drafted."""
        if accepted and self.longest < self._depth:
            self.longest = min(self.longest + _GROWTH, self._depth)
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
        chance = (self._weight * expected + bin_.hits) / (self._weight + bin_.tries)
        bin_.chance = chance
        self.stale = True
        if abs(chance - bin_.planned) > _MOVED:
            self.moved = True

    # -- probes: a drafter that was dropped is tried again occasionally -------------------------

    def earn(self, rounds: float) -> None:
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

    def learn_gain(self, tokens: float) -> None:
        """Record what a round that queried a branching drafter is expected to have added."""
        self.gain += _GAIN_RATE * (tokens - self.gain)

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
        self.peek_tokens = price * self.peek_s.value
        if self.branching:
            self.draw_at = thresholds.tree(steps)
        else:
            chances, met = [bin_.chance for bin_ in self.bins], [bin_.met for bin_ in self.bins]
            best = thresholds.chain(chances, met, steps, self.peek_tokens, at_once=self.at_once)
            self.peek_at, self.draw_at, self.gain = best.peek_at, best.draw_at, best.gain
            for bin_, gain in zip(self.bins, best.first, strict=True):
                bin_.gain = gain
        met_in_all = sum(bin_.met for bin_ in self.bins)
        for bin_ in self.bins:
            bin_.planned = bin_.chance
            if met_in_all > _MOST_MET:
                bin_.met *= _MOST_MET / 2 / met_in_all
        self.stale = self.moved = False
