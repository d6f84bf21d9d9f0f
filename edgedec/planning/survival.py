"""The acceptance model: the probability that drafts are right, by position, and of a draft at all.

A draft counts up to its first wrong token, so the model is a survival function: the probability
that the first i drafted tokens are all right, estimated as Kaplan and Meier (1958) do. A fully
accepted chain of three shows that three tokens were right and says nothing about a fourth: it is
censored there, and position 4 is estimated from longer drafts only. A constant probability per
token, the literature's alpha, would make survival fall geometrically; measured survival does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """Acceptance of one drafter's drafts.

    Attributes:
        drafts: share of rounds with a draft.
        chances: probabilities that the first 1, 2, ... drafted tokens are all right, given a draft.
        rounds: number of rounds it is estimated from, with and without a draft.

    """

    drafts: float
    chances: tuple[float, ...]
    rounds: float

    def accepted(self, length: int) -> float:
        """Return the mean accepted tokens per round, including rounds without a draft."""
        return self.drafts * sum(self.chances[:length])

    def whole(self, length: int) -> float:
        """Return the probability that a draft of this length is fully accepted."""
        if length > len(self.chances):
            return 0.0
        return self.chances[length - 1] if length else 1.0

    def error(self, length: int) -> float:
        """Return the standard error of ``accepted``, given the number of rounds."""
        chances = self.chances[:length]
        # E[a^2] of a number of right tokens is the sum of (2 i - 1) P(a >= i).
        square = self.drafts * sum((2 * i - 1) * c for i, c in enumerate(chances, 1))
        variance = max(0.0, square - self.accepted(length) ** 2)
        return math.sqrt(variance / max(self.rounds, 1.0))


class SurvivalEstimate:
    """Estimate of survival, updated round by round.

    Args:
        most: number of positions to distinguish.

    """

    def __init__(self, most: int) -> None:
        self._rounds = self._drafted = 0
        self._reached = [0] * most
        self._right = [0] * most

    def observe(self, drafted: int, accepted: int) -> None:
        """Count a round that drafted ``drafted`` tokens, the first ``accepted`` of them right.

        Args:
            drafted: 0 if the drafter proposed nothing.
            accepted: at most ``drafted``; if equal, it says nothing about the next position.

        """
        self._rounds += 1
        self._drafted += drafted > 0
        for position in range(min(drafted, accepted + 1, len(self._reached))):
            self._reached[position] += 1
            self._right[position] += position < accepted

    @property
    def survival(self) -> Survival:
        """The estimate so far; 0 beyond positions that were reached."""
        chances = []
        chance = 1.0
        for right, reached in zip(self._right, self._reached, strict=True):
            chance *= right / reached if reached else 0.0
            chances.append(chance)
        drafts = self._drafted / self._rounds if self._rounds else 0.0
        return Survival(drafts, tuple(chances), self._rounds)
