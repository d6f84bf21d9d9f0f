"""A head's states that wait to be read, and the passes of one of its drafts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.decoding.drafting._context import Scores
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import HeadSession
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
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0][:count]

    def drop(self, count: int) -> None:
        """Drop the first ones."""
        left = np.concatenate(self._parts)[count:] if count < self._count else None
        self.clear()
        if left is not None:
            self.add(left)


class Round:
    """The passes of one draft: the missing pairs with the root's, then one for each layer.

    Args:
        session: of the head, which holds the pairs before these.
        sampler: of the request.
        tree: the drafter's, which grows.
        pairs: the missing pairs of the text as a chain, the root's the last.
        carried: the fused states of these pairs, ``[pairs, hidden]``.

    Attributes:
        tree: the drafter's.
        pairs: pairs of the text.
        passes: computed so far.
        scores: of the last one; None before it.

    """

    def __init__(
        self,
        session: HeadSession,
        sampler: Sampler,
        tree: TokenTree,
        pairs: TokenTree,
        carried: FloatArray,
    ) -> None:
        self._session, self._sampler, self.tree, self._own = session, sampler, tree, pairs
        self.pairs, self.passes = len(pairs), 0
        # What the last pass handed on, valid until the next one, and the first of its nodes.
        self._carried, self._start = carried, 0
        self.scores: Scores | None = None

    def reach(self) -> Scores:
        """Compute the nodes of the tree that are missing; return the scores of the last pass.

        They are a layer: children of nodes of the last pass.
        """
        own, tree, above = self._own, self.tree, self.pairs - 1
        start = len(own) if self.passes else 0
        for node in range(1 + len(own) - self.pairs, len(tree)):
            own.add(tree.tokens[node], tree.parents[node] + above)
        if self.scores is not None and len(own) == start:
            return self.scores
        if self.passes:
            self._carried = self._handed_on(own.parents[start:])
        self._session.carry(self._carried)
        scored = self._session.forward(own, start, self._sampler.want)
        assert scored.states is not None, "a head's passes show what they hand on"
        self._carried, self._start = scored.states, start
        self.passes += 1
        seen = scored.below(above)
        rows = self._sampler.rows(seen, tree, Purpose.DRAFT)
        self.scores = Scores(seen, rows, self._sampler)
        return self.scores

    def _handed_on(self, parents: Sequence[int]) -> FloatArray:
        """Return what these nodes of the last pass hand on, ``[parents, hidden]``."""
        return self._carried[[parent - self._start for parent in parents]]
