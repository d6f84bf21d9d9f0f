"""A possible next token, written by the draft's thread and read by the engine's."""

from __future__ import annotations

from math import exp


class LookaheadNode:
    """A possible token, and the draft's distribution of the one after it.

    Two threads share nodes without a lock: one grows them, the other reads. Only the former writes,
    replacing a field as a whole; it writes ``ranked`` once, after ``scores``.

    Attributes:
        token: its id.
        above: its parent; None for the oldest node that is kept.
        chance: probability that the text takes it, given that the text reaches ``above``.
        ranked: the draft's most likely next tokens, best first; None until computed.
        scores: logits of the draft's best next tokens, descending.
        others: next tokens that another drafter proposed.

    """

    __slots__ = ("above", "chance", "others", "ranked", "scores", "token")

    def __init__(self, token: int, above: LookaheadNode | None = None, chance: float = 1.0) -> None:
        self.token, self.above, self.chance = token, above, chance
        self.ranked: tuple[LookaheadNode, ...] | None = None
        self.scores: tuple[float, ...] = ()
        self.others: tuple[LookaheadNode, ...] = ()

    def below(self, token: int) -> LookaheadNode | None:
        """Return the child with this token, or None."""
        for node in (*(self.ranked or ()), *self.others):
            if node.token == token:
                return node
        return None

    @property
    def computed(self) -> bool:
        """Return whether the draft has computed the next distribution; may change at any time."""
        return self.ranked is not None

    @property
    def confidence(self) -> float:
        """Probability of the draft's most likely next token, among its best tokens."""
        return 1 / sum(exp(score - self.scores[0]) for score in self.scores)

    def related(self, other: LookaheadNode) -> bool:
        """Return whether one of the two is an ancestor of the other."""
        return self.leads_to(other) or other.leads_to(self)

    def leads_to(self, other: LookaheadNode | None) -> bool:
        """Return whether ``other`` is this node or below it."""
        while other is not None and other is not self:
            other = other.above
        return other is self
