"""The acceptance model: how far drafts are right, by position, and how often there is one.

A draft counts up to its first wrong token, so what matters is survival: the chance that the first i
drafted tokens are all right. Chances are estimated as Kaplan and Meier (1958) do. A fully accepted
chain of three shows that three tokens were right and says nothing of a fourth: it is censored
there, and position 4 learns from longer drafts alone. A constant chance per token, the literature's
alpha, would make survival fall geometrically; measured chances do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """Acceptance of one drafter's drafts.

    Attributes:
        drafts: share of rounds in which it drafts.
        chances: that the first 1, 2, ... drafted tokens are all right, given a draft.
        rounds: number of rounds it is estimated from, with drafts and without.

    """

    drafts: float
    chances: tuple[float, ...]
    rounds: float

    def accepted(self, length: int) -> float:
        """Return the mean accepted tokens per round, rounds without a draft included."""
        return self.drafts * sum(self.chances[:length])

    def whole(self, length: int) -> float:
        """Return the chance that a draft of this length is accepted whole."""
        if length > len(self.chances):
            return 0.0
        return self.chances[length - 1] if length else 1.0

    def error(self, length: int) -> float:
        """Return the standard error of ``accepted`` from the number of rounds."""
        chances = self.chances[:length]
        # E[a^2] of a number of right tokens is the sum of (2 i - 1) P(a >= i).
        square = self.drafts * sum((2 * i - 1) * c for i, c in enumerate(chances, 1))
        variance = max(0.0, square - self.accepted(length) ** 2)
        return math.sqrt(variance / max(self.rounds, 1.0))


class SurvivalEstimate:
    """Estimate of survival, updated round by round.

    Args:
        most: positions that are told apart.

    """

    def __init__(self, most: int) -> None:
        self._rounds = self._drafted = 0
        self._reached = [0] * most
        self._right = [0] * most

    def observe(self, drafted: int, accepted: int) -> None:
        """Count a round that drafted ``drafted`` tokens, the first ``accepted`` of them right.

        Args:
            drafted: 0 if the drafter proposed nothing.
            accepted: at most ``drafted``; if equal, it says nothing of the next position.

        """
        self._rounds += 1
        self._drafted += drafted > 0
        for position in range(min(drafted, accepted + 1, len(self._reached))):
            self._reached[position] += 1
            self._right[position] += position < accepted

    @property
    def survival(self) -> Survival:
        """Estimate so far; 0 beyond positions that were reached."""
        chances = []
        chance = 1.0
        for right, reached in zip(self._right, self._reached, strict=True):
            chance *= right / reached if reached else 0.0
            chances.append(chance)
        drafts = self._drafted / self._rounds if self._rounds else 0.0
        return Survival(drafts, tuple(chances), self._rounds)
