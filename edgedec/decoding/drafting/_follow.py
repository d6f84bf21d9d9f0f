"""A draft model's session that follows the text, however far behind it falls."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from edgedec.decoding.drafting._translated import translated
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import CannotRollback, InputError

# Up to this many tokens that the session never computed ride along in the next pass; more
# are prefilled, which needs no logits and no ancestor mask.
_RIDE_ALONG = 8
# A long prompt is read over several rounds, which decode without a draft meanwhile: the first
# token does not wait for a second model's prefill, and a cancelled request does not either.
_READ_AT_ONCE = 512


class Follower:
    """Owns a draft session and keeps it a prefix of the text.

    The session lags: it never computes the last token of a chain, nor what another drafter
    proposed. Missing tokens enter as a chain above the root of the next tree, in the pass
    that computes the root, so that a draft of d tokens costs d passes. The caller and the
    sampler see the tree as rooted at the last token of the text, whatever is above it.

    Invariant: the session holds ``_held``, a prefix of ``sampler.history[:-1]``.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.draft is None:
            raise InputError(f"drafter {name!r} needs a draft model: give one, or use 'lookup'")
        self._session, self._widest = translated(parts.draft, parts.translation)
        self._sampler: Sampler | None = None
        self._held: list[int] = []
        # The round: the caller's tree, the session's own (the missing tokens above it), how
        # many those are, nodes pending in the session, and the last pass.
        self._tree: TokenTree | None = None
        self._own = TokenTree(0)
        self._lag = self._pending = self._passes = 0
        self._scored: Pass | None = None
        self._rows: Rows | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another text; what it shares with the last one stays computed."""
        self._sampler = sampler
        self._drop()
        shared = 0
        for mine, theirs in zip(self._held, prompt[:-1], strict=False):
            if mine != theirs:
                break
            shared += 1
        self._rollback(shared)

    def room(self) -> int:
        """Nodes, the root included, that can still be computed in one round."""
        return min(self._session.capacity - len(self._text()) + 1, self._widest)

    def behind(self) -> int:
        """Tokens to read before the next pass; 0 where they are few enough to ride along."""
        missing = len(self._text()) - 1 - len(self._held)
        return missing if missing > _RIDE_ALONG else 0

    def catch_up(self) -> bool:
        """Read what is missing, or a bit of it where that is much; whether that was all."""
        self._drop()
        missing = self._text()[len(self._held) : -1]
        self._read(missing[:_READ_AT_ONCE])
        return len(missing) <= _READ_AT_ONCE

    def rows(self, tree: TokenTree) -> Rows:
        """Rows of the last pass over ``tree``, after computing any nodes still missing.

        The first call for a tree ends whatever round was left open before it.
        """
        if tree is not self._tree:
            self._open(tree)
        if self._rows is None or self._pending - self._lag < len(tree):
            self._rows = self._forward(tree)
        return self._rows

    def confidence(self, node: int) -> float:
        """Probability of the first choice after ``node``, among the last pass's top."""
        best, *others = self.scores(node)
        return 1 / (1 + sum([exp(logit - best) for logit in others]))

    def scores(self, node: int) -> list[float]:
        """Logits of the last pass's top after ``node``, descending."""
        scored = self._last_pass()
        scores: list[float] = scored.top_logits[node - scored.start].tolist()
        return scores

    def chances(self, rows: Rows, node: int, ids: IntArray) -> FloatArray:
        """The draft's probabilities of ``rows.best(node, len(ids))``, ``[len(ids)]``.

        When sampling, after temperature and filters. Greedy, where that would be one-hot,
        by the model itself: how sure it is says how often the target agrees.
        """
        scored, sampler = self._last_pass(), self._sampler
        assert sampler is not None
        if not sampler.params.greedy:
            return rows.probs(node)[ids]
        row = (scored.top_logits if scored.logits is None else scored.logits)[node - scored.start]
        weights: FloatArray = np.exp(row - row.max())
        weights /= weights.sum()
        return weights[: len(ids)] if scored.logits is None else weights[ids]

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Commit the nodes of an accepted path that were computed; forget the others."""
        if tree is not self._tree or not self._pending:
            return
        lag, pending = self._lag, self._pending
        nodes = [*range(lag), *(node + lag for node in path if node + lag < pending)]
        tokens = self._own.tokens_on(nodes)
        self._session.commit(nodes)
        self._held += tokens
        self._forget()

    def close(self) -> None:
        """Give the session back."""
        self._session.close()

    def passes(self, tree: TokenTree) -> int:
        """Passes spent on this tree so far."""
        return self._passes if tree is self._tree else 0

    def _text(self) -> list[int]:
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler.history

    def _last_pass(self) -> Pass:
        assert self._scored is not None, "no pass in this round: call rows() first"
        return self._scored

    def _forget(self) -> None:
        self._tree = None
        self._own = TokenTree(0)
        self._rows = self._scored = None
        self._lag = self._pending = self._passes = 0

    def _drop(self) -> None:
        """End an open round, also one that an exception left half done."""
        del self._held[self._session.length :]  # it went back and was interrupted
        if self._pending or self._session.length != len(self._held):
            self._rollback(len(self._held))
        self._forget()

    def _rollback(self, length: int) -> None:
        try:
            self._session.rollback(length)
        except CannotRollback as error:
            # Further back is as good: what is missing is read again.
            length = error.nearest if error.nearest <= length else 0
            self._session.rollback(length)
        del self._held[length:]

    def _open(self, tree: TokenTree) -> None:
        self._drop()
        text = self._text()
        missing = text[len(self._held) : -1]
        if len(missing) > _RIDE_ALONG:
            self._read(missing)
            missing = []
        self._tree, self._lag = tree, len(missing)
        self._own = TokenTree.chain([*missing, tree.tokens[0]]) if missing else tree

    def _read(self, tokens: Sequence[int]) -> None:
        try:
            self._session.prefill(tokens)
        finally:
            # Interrupted between chunks: what was read stays read.
            self._held += tokens[: self._session.length - len(self._held)]

    def _forward(self, tree: TokenTree) -> Rows:
        own, lag, start = self._own, self._lag, self._pending
        if lag:
            for node in range(len(own) - lag, len(tree)):
                own.add(tree.tokens[node], tree.parents[node] + lag)
        sampler = self._sampler
        assert sampler is not None
        scored = self._session.forward(own, start, sampler.want)
        self._pending = len(own)
        self._passes += 1
        self._scored = _below(scored, lag) if lag else scored
        return sampler.rows(self._scored, tree, Purpose.DRAFT)


def _below(scored: Pass, lag: int) -> Pass:
    """The same pass as seen from the node ``lag`` deep: rows above it cut, nodes renumbered."""
    cut = max(0, lag - scored.start)
    logits = None if scored.logits is None else scored.logits[cut:]
    start = max(0, scored.start - lag)
    return Pass(start, scored.top_ids[cut:], scored.top_logits[cut:], logits)
