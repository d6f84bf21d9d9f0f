"""A possible next token: the draft's thread writes it, the scheduler's thread reads it."""

from __future__ import annotations

from math import exp, log


class LookaheadNode:
    """A possible token, and the draft's distribution of the one after it.

    Twigs are shared by two threads without a lock: one grows them, the other reads. A field that
    changes is written by that one thread as a whole, and ``ranked`` once, after ``scores``.

    Attributes:
        token: its id.
        above: the node before it; None at the beginning of what is remembered.
        chance: that the text goes on with it, given that it comes to ``above``.
        ranked: the draft's choices for the next token, best first; None until computed.
        scores: the logits of the draft's best tokens there, descending.
        others: next tokens that somebody else thought of.

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
        """True once the draft has computed the next distribution; may change at any time."""
        return self.ranked is not None

    @property
    def confidence(self) -> float:
        """Probability of the draft's first choice after it, among its best tokens."""
        return 1 / sum(self._weights())

    @property
    def entropy(self) -> float:
        """Entropy of the draft's next distribution, in nats, among its best tokens."""
        weights = self._weights()
        total = sum(weights)
        return -sum(weight / total * log(weight / total) for weight in weights if weight)

    def _weights(self) -> list[float]:
        return [exp(score - self.scores[0]) for score in self.scores]

    def related(self, other: LookaheadNode) -> bool:
        """True if one of the two is an ancestor of the other."""
        return self.leads_to(other) or other.leads_to(self)

    def leads_to(self, other: LookaheadNode | None) -> bool:
        """True if ``other`` is this node or below it."""
        while other is not None and other is not self:
            other = other.above
        return other is self
