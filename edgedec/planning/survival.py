"""The acceptance model: how far a draft goes right, by position, and how often there is one.

A draft counts up to its first wrong token, so what matters is survival: the chance that the
first i drafted tokens are all right. Chances are estimated as Kaplan and Meier (1958) do. A
chain of three that was accepted whole says that three tokens were right and nothing of a
fourth: it is censored there, and position 4 learns from longer drafts alone. A constant chance
a token, which the literature calls alpha, would say that it falls off geometrically; measured
chances do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """What is known of one drafter.

    Attributes:
        drafts: share of rounds in which it drafts.
        chances: that the first 1, 2, ... drafted tokens are all right, where it does.
        rounds: that this is known from, drafts and others.

    """

    drafts: float
    chances: tuple[float, ...]
    rounds: float

    def accepted(self, length: int) -> float:
        """Drafted tokens that stay, a round, those without a draft included."""
        return self.drafts * sum(self.chances[:length])

    def whole(self, length: int) -> float:
        """Chance that a draft of this length is accepted whole."""
        if length > len(self.chances):
            return 0.0
        return self.chances[length - 1] if length else 1.0

    def error(self, length: int) -> float:
        """Standard error of ``accepted``, from how few rounds it is known from."""
        chances = self.chances[:length]
        # E[a^2] of a number of right tokens is the sum of (2 i - 1) P(a >= i).
        square = self.drafts * sum((2 * i - 1) * c for i, c in enumerate(chances, 1))
        variance = max(0.0, square - self.accepted(length) ** 2)
        return math.sqrt(variance / max(self.rounds, 1.0))


class SurvivalEstimate:
    """Survival as it is counted, round by round.

    Args:
        most: positions that are told apart.

    """

    def __init__(self, most: int) -> None:
        self._rounds = self._drafted = 0
        self._reached = [0] * most
        self._right = [0] * most

    def observe(self, drafted: int, accepted: int) -> None:
        """A round drafted so many tokens, and the first ``accepted`` of them were right.

        Args:
            drafted: 0 where the drafter had nothing to say.
            accepted: at most ``drafted``; equal to it, it says nothing of the next position.

        """
        self._rounds += 1
        self._drafted += drafted > 0
        for position in range(min(drafted, accepted + 1, len(self._reached))):
            self._reached[position] += 1
            self._right[position] += position < accepted

    @property
    def survival(self) -> Survival:
        """As it is known now; nothing is promised beyond positions that were reached."""
        chances = []
        chance = 1.0
        for right, reached in zip(self._right, self._reached, strict=True):
            chance *= right / reached if reached else 0.0
            chances.append(chance)
        drafts = self._drafted / self._rounds if self._rounds else 0.0
        return Survival(drafts, tuple(chances), self._rounds)
