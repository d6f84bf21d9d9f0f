"""Rows of one pass: distributions that are computed when a rule first visits them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import filters
from edgedec.decoding.sampling.race import race
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import SessionError, StateError

if TYPE_CHECKING:
    from edgedec.decoding.sampling.sampler import Sampler

# exp(-80) is still a normal float32; -inf would make 0 * inf in the entropy.
_NEGLIGIBLE = np.float32(-80)


class Rows:
    """The distributions after each node of a tree, each computed when first asked for.

    Row ``node`` is the distribution of the token that follows that node; penalties act on
    the node's own path. Valid until the session's next pass, since a pass is a view.
    """

    def __init__(self, sampler: Sampler, scored: Pass, tree: TokenTree, purpose: Purpose) -> None:
        self._sampler = sampler
        self._scored = scored
        self._tree = tree
        self._purpose = purpose
        self._position = len(sampler.history)
        self._first: tuple[list[int], list[float]] | None = None
        self._drawn: dict[int, int] = {}
        self._scaled: dict[int, tuple[IntArray | None, FloatArray]] = {}

    def position(self, node: int) -> int:
        """Return the absolute position that the row predicts; random numbers are keyed by it."""
        return self._position + self._tree.depths[node]

    def draw(self, node: int) -> int:
        """Return the token that plain decoding emits after this node: argmax of log p + noise."""
        if self._sampler.plain_greedy:
            if self._first is None:
                self._first = self._scored.first()
            first, logits = self._first
            row = node - self._scored.start
            if not logits[row] > -np.inf:
                raise self._no_numbers()
            return first[row]
        token = self._drawn.get(node)
        if token is None:
            ids, sums = self._race(node, 1)
            place = int(sums.argmax())
            if not sums[place] > -np.inf:  # argmax stops at a NaN
                raise self._no_numbers()
            token = self._drawn[node] = place if ids is None else int(ids[place])
        return token

    def best(self, node: int, count: int) -> IntArray:
        """Return the ``count`` best tokens of log p + noise, best first (Gumbel-top-k).

        Greedy: the most likely ones (at most the pass's ``top_k`` if it has no logits). Fewer when
        fewer tokens have any probability, but at least one.
        """
        scored, row = self._scored, node - self._scored.start
        if self._sampler.plain_greedy and (scored.logits is None or count <= _width(scored)):
            best = scored.top_ids[row, :count][scored.top_logits[row, :count] > -np.inf]
        else:
            ids, sums = self._race(node, count)
            order = filters.ranked(sums, min(count, len(sums)))
            best = order if ids is None else ids[order]
        if not len(best):
            raise self._no_numbers()
        return best

    def probs(self, node: int) -> FloatArray:
        """Return the processed distribution, ``[vocab]`` float32; greedy is one-hot."""
        chances = np.zeros(self._sampler.vocab_size, dtype=np.float32)
        if self._sampler.params.greedy:
            chances[self.draw(node)] = 1
            return chances
        ids, scores = self._scores(node)
        weights: FloatArray = np.exp(scores - scores.max())
        weights /= weights.sum()
        if ids is None:
            chances = weights
        else:
            chances[ids] = weights
        return chances

    def entropy(self, node: int) -> float:
        """Return the entropy in nats of the model's own distribution at temperature 1.

        If the pass has no logits, that of its ``top_k`` tokens alone, which is slightly less.
        """
        excess = np.maximum(self._raw(node) - self._raw(node).max(), _NEGLIGIBLE)
        weights = np.exp(excess)
        total = float(weights.sum())
        return float(np.log(total)) - float(weights @ excess) / total

    def logprob(self, node: int, token: int) -> float:
        """Return the log-probability of ``token`` by the model itself.

        Temperature 1, no bias, no penalties, no filters: it does not depend on how tokens are
        chosen.
        """
        row = self._logits(node)
        return float(row[token]) - _log_total(row)

    def top_logprobs(self, node: int, count: int) -> list[tuple[int, float]]:
        """Return the ``count`` most likely tokens by the model itself with their logprobs."""
        row = self._logits(node)
        ids, total = filters.ranked(row, min(count, len(row))), _log_total(row)
        return [(int(token), float(row[token]) - total) for token in ids]

    def _logits(self, node: int) -> FloatArray:
        if self._scored.logits is None:
            raise StateError("this pass brought no logits: ask forward() for Want.LOGITS")
        row: FloatArray = self._scored.logits[node - self._scored.start]
        return row

    def _raw(self, node: int) -> FloatArray:
        if self._scored.logits is None:
            row: FloatArray = self._scored.top_logits[node - self._scored.start]
            return row
        return self._logits(node)

    def _scores(self, node: int) -> tuple[IntArray | None, FloatArray]:
        """Return surviving ids (None: all) and their logits after bias, penalties, temperature."""
        known = self._scaled.get(node)
        if known is not None:
            return known
        sampler, row = self._sampler, self._penalised(node)
        ids: IntArray | None = None
        if not sampler.params.greedy:
            row = row * sampler.inverse_temperature
            if sampler.params.filtered:
                ids = filters.survivors(row, sampler.params)
                if not len(ids):
                    raise self._no_numbers()
                row = row[ids]
        self._scaled[node] = ids, row
        return ids, row

    def _penalised(self, node: int) -> FloatArray:
        row, penalties = self._logits(node), self._sampler.penalties
        if penalties is None:
            return row
        return penalties.applied(row, self._tree.tokens_on(self._tree.path_to(node)[1:]))

    def _race(self, node: int, count: int) -> tuple[IntArray | None, FloatArray]:
        """Ids (None: all) and scores with noise, the ``count`` largest among them."""
        sampler = self._sampler
        params = sampler.params
        if params.greedy:
            return self._scores(node)
        # Siblings of an uncoupled draft need noise of their own: how far one of them is
        # expanded may depend on what another drew.
        index = 0
        if self._purpose is Purpose.DRAFT and not sampler.streams.coupled:
            index = 1 + (self._position << 24) + node
        noise = sampler.streams.noise(self.position(node), sampler.vocab_size, self._purpose, index)
        if params.filtered:
            ids, scores = self._scores(node)
            return ids, scores + (noise.all() if ids is None else noise.of(ids))
        row = self._penalised(node)
        likely = self._scored.top_ids[node - self._scored.start]
        return race(row, sampler.inverse_temperature, noise, likely, count)

    def _no_numbers(self) -> SessionError:
        model = "draft" if self._purpose is Purpose.DRAFT else "target"
        return SessionError(
            f"the {model}'s logits are NaN or -inf: its file is damaged or its numbers overflow,"
            " download or export it again"
        )


def _width(scored: Pass) -> int:
    return int(scored.top_ids.shape[1])


def _log_total(row: FloatArray) -> float:
    best = float(row.max())
    return best + float(np.log(np.exp(row - best).sum(dtype=np.float64)))
