"""A draft model's session that follows the text, however far it falls behind."""

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

# Up to this many missing tokens are computed in the next pass; more are prefilled, which needs
# neither logits nor an ancestor mask.
_RIDE_ALONG = 8
# A long prompt is read over several rounds, which meanwhile decode without a draft: neither the
# first token nor a cancelled request waits for a second model's prefill.
_READ_AT_ONCE = 512


class Follower:
    """Owner of a draft session that keeps it a prefix of the text.

    The session lags: it computes neither the last token of a chain nor what another drafter
    proposed. Missing tokens are added as a chain above the root of the next tree, in the pass that
    computes the root, so a draft of d tokens costs d passes. The caller and the sampler see the
    tree as rooted at the last token of the text, whatever is above it.

    Invariant: the session holds ``_held``, a prefix of ``sampler.history[:-1]``.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.draft is None:
            raise InputError(f"drafter {name!r} needs a draft model: give one, or use 'lookup'")
        self._session, self._widest = translated(parts.draft, parts.translation)
        self._sampler: Sampler | None = None
        self._held: list[int] = []
        # State of the round: the caller's tree, the session's own (with the missing tokens above
        # it), how many those are, nodes pending in the session, and the last pass.
        self._tree: TokenTree | None = None
        self._own = TokenTree(0)
        self._lag = self._pending = self._passes = 0
        self._scored: Pass | None = None
        self._rows: Rows | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another text; the prefix shared with the last one stays computed."""
        self._sampler = sampler
        self._drop()
        shared = 0
        for mine, theirs in zip(self._held, prompt[:-1], strict=False):
            if mine != theirs:
                break
            shared += 1
        self._rollback(shared)

    def room(self) -> int:
        """Return how many nodes, including the root, can still be computed in one round."""
        return min(self._session.capacity - len(self._text()) + 1, self._widest)

    def behind(self) -> int:
        """Return how many tokens must be read before the next pass; 0 if it can include them."""
        missing = len(self._text()) - 1 - len(self._held)
        return missing if missing > _RIDE_ALONG else 0

    def catch_up(self) -> bool:
        """Read the missing tokens, or a chunk of them if there are many; True if all are read."""
        self._drop()
        missing = self._text()[len(self._held) : -1]
        self._read(missing[:_READ_AT_ONCE])
        return len(missing) <= _READ_AT_ONCE

    def rows(self, tree: TokenTree) -> Rows:
        """Return rows of the last pass over ``tree``, after computing any missing nodes.

        The first call for a tree ends any round left open before it.
        """
        if tree is not self._tree:
            self._open(tree)
        if self._rows is None or self._pending - self._lag < len(tree):
            self._rows = self._forward(tree)
        return self._rows

    def confidence(self, node: int) -> float:
        """Return the probability of the first choice after ``node``, among the last pass's top."""
        best, *others = self.scores(node)
        return 1 / (1 + sum([exp(logit - best) for logit in others]))

    def scores(self, node: int) -> list[float]:
        """Return logits of the last pass's top after ``node``, descending."""
        scored = self._last_pass()
        scores: list[float] = scored.top_logits[node - scored.start].tolist()
        return scores

    def chances(self, rows: Rows, node: int, ids: IntArray) -> FloatArray:
        """Return the draft's probabilities of ``rows.best(node, len(ids))``, ``[len(ids)]``.

        When sampling, they are taken after temperature and filters. When greedy, which would make
        them one-hot, they are the model's own, since its certainty predicts how often the target
        agrees.
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
        """Close the session."""
        self._session.close()

    def passes(self, tree: TokenTree) -> int:
        """Return the number of passes spent on this tree so far."""
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
        """End an open round, even one that an exception left unfinished."""
        del self._held[self._session.length :]  # interrupted after it went back
        if self._pending or self._session.length != len(self._held):
            self._rollback(len(self._held))
        self._forget()

    def _rollback(self, length: int) -> None:
        try:
            self._session.rollback(length)
        except CannotRollback as error:
            # Going back further is fine: missing tokens are read again.
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
            # If interrupted between chunks, the chunks read so far stay read.
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
    """Return the pass as seen from the node ``lag`` deep: rows above it cut, nodes renumbered."""
    cut = max(0, lag - scored.start)
    logits = None if scored.logits is None else scored.logits[cut:]
    start = max(0, scored.start - lag)
    return Pass(start, scored.top_ids[cut:], scored.top_logits[cut:], logits)
