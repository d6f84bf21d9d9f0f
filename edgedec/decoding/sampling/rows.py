"""Rows of one pass, distributions that are computed when a rule first visits them; the sampler."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgedec.decoding.noise import SMALL_VOCABULARY, Noise, noise_bytes
from edgedec.decoding.params import SamplingParams
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import filters
from edgedec.decoding.sampling.exponential_clocks import noisy_scores, not_below, winner
from edgedec.decoding.sampling.state import SamplingState
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import DraftFailed, SessionError, StateError

# Bounds the relative difference between scores in float32 and exact ones, with room to spare.
_ROUNDING = 1e-6
# Likewise of sums of probabilities, beyond what follows from the scores.
_SUMMED = 1e-4
# Bounds scores that float32 holds.
_HUGE = 1e30
# Tokens whose score is this far below the best one's have little of the probability.
_AROUND = 5.0


def surely_kept(
    row: FloatArray, token: int, best: float, scale: np.float32, params: SamplingParams
) -> bool:
    """Return whether ``filters.survivors`` is certain to include a token; False: it has to tell.

    Args:
        row: logits, ``[vocab]`` float32.
        best: the largest logit.
        scale: the inverse temperature.

    """
    factor = float(scale)
    own, first = row.item(token) * factor, best * factor
    # Scores within this may be equal in float32, where the lower id comes first.
    slack = _ROUNDING * (1 + abs(own) + abs(first))
    bar = min(own - slack, first - _AROUND)
    if params.min_p == 1 or not (bar > -_HUGE and first < _HUGE):  # NaN is neither
        return False
    ids = not_below(bar / factor, row)
    if ids is None:
        return False
    scores = sorted([row.item(id) * factor for id in ids], reverse=True)
    # Tokens that may come before this one, itself included.
    rank = sum([score >= own - slack for score in scores])
    scores = scores[: params.top_k or None]
    if rank > len(scores):
        return False
    if params.min_p > 0 and own - first < math.log(params.min_p) + slack:
        return False
    # At most so much lies before the token; what is not counted only adds to the whole.
    weights = [math.exp(score - first) for score in scores]
    before, whole = sum(weights[: rank - 1]), sum(weights)
    return before < params.top_p * whole * (1 - _SUMMED - 2 * slack)


_NEVER = np.float32(-np.inf)
# Rows without a clear winner mostly come in a row: for so many it is not looked for.
_FLAT_ROWS = 6
# A score is a float32, kept for each row that penalties, filters or noise of all tokens apply to.
_SCORE_BYTES = 4


class Rows:
    """The distributions after each node of a tree, each computed when first asked for.

    Row ``node`` is the distribution of the token that follows that node; penalties and the
    constraint act on the node's own path. Valid until the session's next pass, since a pass is a
    view.
    """

    def __init__(
        self, sampler: SamplingState, scored: Pass, tree: TokenTree, purpose: Purpose
    ) -> None:
        self._sampler = sampler
        self.scored = scored
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
            first, logit = self._most_likely(node)
            if not -np.inf < logit < np.inf:
                raise self._no_numbers()
            return first
        token = self._drawn.get(node)
        if token is None:
            token = self._allowed_best(node) if self._sampler.params.greedy else self._won(node)
        if token is None:
            ids, sums = self._noisy_scores(node, 1)
            index = int(sums.argmax())
            if not np.isfinite(sums[index]):  # argmax stops at a NaN
                raise self._no_numbers()
            token = index if ids is None else int(ids[index])
        self._drawn[node] = token
        return token

    def best(self, node: int, count: int) -> IntArray:
        """Return the ``count`` best tokens of log p + noise, best first (Gumbel-top-k).

        Greedy: the most likely ones (at most the pass's ``top_k`` if it has no logits). Fewer when
        fewer tokens have any probability, but at least one.
        """
        scored, row = self.scored, node - self.scored.start
        if self._sampler.plain_greedy and (scored.logits is None or count <= _width(scored)):
            tops = scored.top_logits[row, :count]
            best, first = scored.top_ids[row, :count][tops > -np.inf], tops[0]
        else:
            ids, sums = self._noisy_scores(node, count)
            order = filters.ranked(sums, min(count, len(sums)))
            best, first = order if ids is None else ids[order], sums[order[:1]].max(initial=-np.inf)
        if not len(best) or not np.isfinite(first):
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

    def permits(self, node: int, token: int) -> bool:
        """Return whether the constraint allows ``token`` after this node."""
        return self._sampler.permits(self._tree, node, token)

    def _allowed_best(self, node: int) -> int | None:
        """Return the model's own best token if it is certain to be drawn; no mask is computed."""
        sampler = self._sampler
        if sampler.penalties is not None:
            return None
        best, logit = self._most_likely(node)
        # NaN or infinity: left to the row, which says so.
        return best if -np.inf < logit < np.inf and self.permits(node, best) else None

    def _won(self, node: int) -> int | None:
        """Return the token that wins clearly and that filters keep for certain.

        None: it is unclear, or the row is not the model's own, or other ways are as fast.
        """
        sampler, scored, params = self._sampler, self.scored, self._sampler.params
        large = sampler.vocab_size > SMALL_VOCABULARY
        if sampler.shaped or scored.logits is None or not (large or params.filtered):
            return None
        if sampler.flat:
            sampler.flat -= 1
            return None
        row, scale, noise = node - scored.start, sampler.inverse_temperature, self._noise(node)
        if not (large or noise.made or self._shares_noise):
            return None
        logits = scored.logits[row]
        ids, tops = scored.leading(row)
        if not tops[0] < np.inf:  # left to the row, which says so
            return None
        if large:
            token = winner(logits, scale, noise, ids, tops)
            if token is None:
                sampler.flat = _FLAT_ROWS
                return None
        else:
            token = int((logits * scale + noise.all()).argmax())
        kept = not params.filtered or surely_kept(logits, token, tops[0], scale, params)
        return token if kept else None

    @property
    def _shares_noise(self) -> bool:
        """Whether another row, the target's, will ask for the noise that is made for these."""
        return self._purpose is Purpose.DRAFT and self._sampler.streams.coupled

    def _most_likely(self, node: int) -> tuple[int, float]:
        """Return the model's own best token and its logit, NaN if the row contains one."""
        if self._first is None:
            self._first = self.scored.first()
        first, logits = self._first
        row = node - self.scored.start
        return first[row], logits[row]

    def _logits(self, node: int) -> FloatArray:
        if self.scored.logits is None:
            raise StateError("this pass brought no logits: ask forward() for Want.LOGITS")
        row: FloatArray = self.scored.logits[node - self.scored.start]
        return row

    def own(self, node: int) -> FloatArray:
        """Return the model's own logits, -inf for what the constraint refuses.

        ``[vocab]`` float32, or ``[top_k]`` if the pass has no logits.
        """
        if self.scored.logits is None:
            row: FloatArray = self.scored.top_logits[node - self.scored.start]
            return row
        return self._within(node, self._logits(node))

    def _scores(self, node: int) -> tuple[IntArray | None, FloatArray]:
        """Return surviving ids (None: all) and their logits after bias, penalties, temperature."""
        known = self._scaled.get(node)
        if known is not None:
            return known
        sampler, row = self._sampler, self._shaped(node)
        ids: IntArray | None = None
        if not sampler.params.greedy:
            row = row * sampler.inverse_temperature
            if sampler.params.filtered:
                self._refuse_no_numbers(row)
                ids = filters.survivors(row, sampler.params)
                if not len(ids):
                    raise self._no_numbers()
                row = row[ids]
        self._scaled[node] = ids, row
        return ids, row

    def _shaped(self, node: int) -> FloatArray:
        """Return a row after bias, penalties and constraint."""
        return self._within(node, self._penalised(node))

    def _penalised(self, node: int) -> FloatArray:
        row, penalties = self._logits(node), self._sampler.penalties
        return row if penalties is None else penalties.applied(row, self._path(node))

    def _within(self, node: int, row: FloatArray) -> FloatArray:
        """Return a row with -inf for what the constraint refuses."""
        constraint = self._sampler.constraint
        allowed = None if constraint is None else constraint.allowed(self._path(node))
        if allowed is None:  # everything may follow, or nobody visits this row
            return row
        self._refuse_no_numbers(row)
        masked: FloatArray = np.where(allowed, row, _NEVER)
        if self._purpose is Purpose.DRAFT and masked.max() == _NEVER:
            # A draft of another vocabulary has none of the allowed tokens: any will do.
            masked = np.where(allowed, np.float32(0), _NEVER)
        return masked

    def _path(self, node: int) -> list[int]:
        return self._tree.tokens_on(self._tree.path_to(node)[1:])

    def _noisy_scores(self, node: int, count: int) -> tuple[IntArray | None, FloatArray]:
        """Ids (None: all) and scores with noise, the ``count`` largest among them."""
        sampler = self._sampler
        params = sampler.params
        if params.greedy:
            return self._scores(node)
        noise = self._noise(node)
        if params.filtered:
            ids, scores = self._scores(node)
            return ids, scores + (noise.all() if ids is None else noise.of(ids))
        scored, row = self.scored, self._shaped(node)
        index = node - scored.start
        likely = scored.leading(index)[0] if count == 1 else scored.top_ids[index]
        return noisy_scores(row, sampler.inverse_temperature, noise, likely, count)

    def _noise(self, node: int) -> Noise:
        """Return the noise of a node's position."""
        sampler, purpose, index = self._sampler, self._purpose, 0
        # Siblings of an uncoupled draft need noise of their own: how far one of them is
        # expanded may depend on what another drew.
        if purpose is Purpose.DRAFT and not sampler.streams.coupled:
            index = 1 + (self._position << 24) + node
        return sampler.streams.noise(self.position(node), sampler.vocab_size, purpose, index)

    def _refuse_no_numbers(self, row: FloatArray) -> None:
        """Refuse a row with a NaN or no finite maximum, which a filter or a mask would hide."""
        if not np.isfinite(row.max()):
            raise self._no_numbers()

    def _no_numbers(self) -> SessionError:
        drafted = self._purpose is Purpose.DRAFT
        error = DraftFailed if drafted else SessionError
        return error(
            f"the {'draft' if drafted else 'target'}'s logits are NaN or infinite: its file is"
            " damaged or its numbers overflow, download or export it again"
        )


def _width(scored: Pass) -> int:
    return int(scored.top_ids.shape[1])


def _log_total(row: FloatArray) -> float:
    best = float(row.max())
    return best + float(np.log(np.exp(row - best).sum(dtype=np.float64)))


class Sampler(SamplingState):
    """Draws the tokens of one text from the passes over it."""

    def twin(self) -> Sampler:
        """Return a copy of the same seed and text so far, which counts as its prompt.

        The two share no mutable state, so another thread may draw with it.
        """
        params = dataclasses.replace(self.params, seed=self.streams.seed)
        return Sampler(
            params,
            self.vocab_size,
            self.history,
            coupled=self.streams.coupled,
            constraint=None if self.constraint is None else self.constraint.twin(),
        )

    def rows(self, scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
        """Return rows over a pass; a node of depth d predicts position ``len(history) + d``."""
        return Rows(self, scored, tree, purpose)


def sampler_bytes(vocab_size: int, rows: int) -> int:
    """Return the bytes that sampling keeps: noise, and the scores of a pass's rows."""
    return noise_bytes(vocab_size) + _SCORE_BYTES * rows * vocab_size
