"""What a drafter of chains or trees asks of the model behind it, a draft model or a head."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Protocol

import numpy as np

from edgedec.decoding.drafting.base import DrafterState
from edgedec.decoding.sampling import Rows, Sampler, filters
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree


class Context(Protocol):
    """A model that is kept in step with the text, and scores the nodes of one tree a round."""

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another request; the prefix shared with the last one stays cached."""
        ...

    def make_room(self, nodes: int) -> int:
        """Return how many nodes, including the root, can be computed; asks for ``nodes``."""
        ...

    def behind(self) -> int:
        """Return how many tokens to prefill before the next pass; 0 if it can include them."""
        ...

    def catch_up(self) -> bool:
        """Prefill tokens that are missing; return whether all are done."""
        ...

    def rows(self, tree: TokenTree, masks: Sequence[int] = ()) -> Rows:
        """Return rows of the last pass over ``tree``, after computing any missing nodes."""
        ...

    def confidence(self, node: int) -> float:
        """See ``Scores.confidence``."""
        ...

    def chances(self, node: int, ids: IntArray) -> FloatArray:
        """See ``Scores.chances``."""
        ...

    def passes(self, tree: TokenTree) -> int:
        """Return the number of passes spent on this tree so far."""
        ...

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """End the round of this tree, of which the target accepted a path."""
        ...

    def states(self) -> dict[str, DrafterState]:
        """See ``Stateful``."""
        ...

    def evict(self, *, kept: bool = False) -> None:
        """Release its memory, unless it is ``kept``."""
        ...

    def close(self) -> None:
        """Close the session."""
        ...


class Scores:
    """The scores of a draft's last pass, of nodes of the drafter's tree.

    Args:
        scored: the pass.
        rows: its rows, as the sampler processed them.
        sampler: of the request.

    """

    def __init__(self, scored: Pass, rows: Rows, sampler: Sampler) -> None:
        self._scored, self.rows, self._sampler = scored, rows, sampler

    def confidence(self, node: int) -> float:
        """Return the probability of the most likely token after ``node``, among the top logits."""
        scores = self.top(node)
        best = scores[0]  # whose own share is the 1
        return 1 / sum([exp(logit - best) for logit in scores])

    def top(self, node: int) -> list[float]:
        """Return logits of the pass's top allowed tokens after ``node``, descending."""
        top = self._scored.top_logits[node - self._scored.start]
        if self._sampler.constraint is not None:
            row = self.rows.own(node)
            top = row[filters.ranked(row, len(top))]
        scores: list[float] = top.tolist()
        return scores

    def chances(self, node: int, ids: IntArray) -> FloatArray:
        """Return the draft's probabilities of ``rows.best(node, len(ids))``, ``[len(ids)]``.

        When sampling, they are taken after temperature and filters. When greedy, which would make
        them one-hot, they are the model's own, since its certainty predicts how often the target
        agrees.
        """
        if not self._sampler.params.greedy:
            return self.rows.probs(node)[ids]
        row = self.rows.own(node)
        weights: FloatArray = np.exp(row - row.max())
        weights /= weights.sum()
        return weights[: len(ids)] if self._scored.logits is None else weights[ids]
