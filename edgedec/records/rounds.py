"""Rounds of drafters on calibration texts: how much was drafted, and how much of it accepted.

A draft counts up to its first wrong token, so acceptance is a survival function: the probability
that the first i drafted tokens are all right, estimated as Kaplan and Meier (1958) do. A fully
accepted chain of three shows that three tokens were right and says nothing about a fourth: it is
censored there, and position 4 is estimated from longer drafts only. A constant probability per
token, the literature's alpha, would make survival fall geometrically; measured survival does not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts of one source: a drafter, or one part of a composite drafter.

    Attributes:
        source: the drafter's name.
        share: share of the rounds in which it made the draft.
        chances: probabilities that the first 1, 2, ... drafted tokens are all right, given a draft.
        nodes: mean number of drafted tokens of a draft.

    """

    source: str
    share: float
    chances: tuple[float, ...]
    nodes: float

    def accepted(self, length: int) -> float:
        """Return the mean accepted tokens per round, including rounds without a draft."""
        return self.share * sum(self.chances[:length])

    def whole(self, length: int) -> float:
        """Return the probability that a draft of this length is fully accepted."""
        if length > len(self.chances):
            return 0.0
        return self.chances[length - 1] if length else 1.0


@dataclass(frozen=True, slots=True)
class DrafterRounds:
    """The rounds of one drafter, decoded for real at the places where the models are quickest.

    Attributes:
        drafter: its name; ``none`` is plain decoding.
        draft_length: drafted tokens per round; None if the policy decided each round.
        temperature: of the texts; 0 is greedy.
        rounds: how many there were.
        tokens: mean emitted tokens of a round.
        rows: mean rows of the target's pass, including the root.
        draft_passes: mean time in the draft model, in passes over a single row.
        overhead_s: mean seconds outside both models.
        drafts: by source; only for a fixed length.

    """

    drafter: str
    draft_length: int | None
    temperature: float
    rounds: int
    tokens: float
    rows: float
    draft_passes: float = 0.0
    overhead_s: float = 0.0
    drafts: tuple[Drafts, ...] = ()


class SurvivalEstimate:
    """Estimate of one source's acceptance, updated round by round.

    Args:
        source: the drafter's name.
        most: number of positions to distinguish.

    """

    def __init__(self, source: str, most: int) -> None:
        self._source = source
        self._rounds = self._drafted = self._nodes = 0
        self._reached = [0] * most
        self._right = [0] * most

    def observe(self, nodes: int, depth: int, accepted: int) -> None:
        """Count a round.

        Args:
            nodes: drafted tokens; 0 if this source did not make the draft.
            depth: longest path among them.
            accepted: at most ``depth``; if equal, it says nothing about the next position.

        """
        self._rounds += 1
        self._drafted += nodes > 0
        self._nodes += nodes
        for position in range(min(depth, accepted + 1, len(self._reached))):
            self._reached[position] += 1
            self._right[position] += position < accepted

    @property
    def drafts(self) -> Drafts:
        """The estimate so far; 0 beyond positions that were reached."""
        chances = []
        chance = 1.0
        for right, reached in zip(self._right, self._reached, strict=True):
            chance *= right / reached if reached else 0.0
            chances.append(chance)
        share = self._drafted / self._rounds if self._rounds else 0.0
        nodes = self._nodes / self._drafted if self._drafted else 0.0
        return Drafts(self._source, share, tuple(chances), nodes)
