"""A head's states that wait to be read, and the passes of one of its drafts."""

from __future__ import annotations

from math import exp

import numpy as np

from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.session import Pass
from edgedec.decoding.session_abilities import HeadSession
from edgedec.decoding.tree import FloatArray, TokenTree


class Waiting:
    """States that were read and are not in the session yet, joined when they are needed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all."""
        self._parts: list[FloatArray] = []
        self._count = 0

    def add(self, states: FloatArray) -> None:
        """Append a copy."""
        self._parts.append(states.copy())
        self._count += len(states)

    def __len__(self) -> int:
        return self._count

    def first(self, count: int) -> FloatArray:
        """Return the first ones, ``[count, taps * hidden]``."""
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0][:count]

    def drop(self, count: int) -> None:
        """Drop the first ones."""
        left = np.concatenate(self._parts)[count:] if count < self._count else None
        self.clear()
        if left is not None:
            self.add(left)


class Round:
    """The passes of one draft: the missing pairs with the root's, then one for each token.

    Attributes:
        pairs: pairs of the text in it, the root's the last.
        passes: computed so far.
        rows: those of the last pass, as rows of the drafter's tree.

    """

    rows: Rows

    def __init__(
        self, session: HeadSession, sampler: Sampler, own: TokenTree, carried: FloatArray
    ) -> None:
        self._session, self._sampler, self._own, self._carried = session, sampler, own, carried
        self.pairs, self.passes = len(own), 0
        self._scored: Pass | None = None

    def reach(self, tree: TokenTree) -> None:
        """Compute the nodes of ``tree`` that are missing."""
        own, start = self._own, len(self._own) if self.passes else 0
        for node in range(1 + len(own) - self.pairs, len(tree)):
            own.add(tree.tokens[node], tree.parents[node] + self.pairs - 1)
        if len(own) == start:
            return
        self._session.carry(self._carried)
        scored = self._session.forward(own, start, self._sampler.want)
        assert scored.states is not None, "a head's passes show what they hand on"
        self._carried = scored.states[-1:].copy()
        self._scored = scored.below(self.pairs - 1)
        self.rows = self._sampler.rows(self._scored, tree, Purpose.DRAFT)
        self.passes += 1

    def confidence(self, node: int) -> float:
        """Return the probability of the most likely token after ``node``, among the top logits."""
        assert self._scored is not None, "reach() comes first"
        scores = self._scored.top_logits[node - self._scored.start].tolist()
        return 1 / sum([exp(score - scores[0]) for score in scores])
