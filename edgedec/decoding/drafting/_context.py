"""A model behind a drafter, a draft model or a head, that is kept in step with the text.

``DraftContext`` is a draft model's; a head's is in ``_head_context``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import exp
from typing import BinaryIO

import numpy as np

from edgedec.decoding import drafting, snapshot
from edgedec.decoding.drafting._translated import translated
from edgedec.decoding.drafting.base import DrafterParts, DrafterState
from edgedec.decoding.prefill import RIDE_ALONG, go_back, shared_length
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler, filters
from edgedec.decoding.session import Pass, Session, Trimmable
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import InputError

# Saved sessions name the window so.
_SAVED_AS = "view"
# First tokens that every window keeps: they are attention sinks (2309.17453, section 3.1).
ATTENTION_SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


class Context(ABC):
    """Owner of a session that follows the text, and scores the nodes of one tree a round.

    The session lags: it computes neither the last token of a chain nor what another drafter
    proposed. Missing tokens are added as a chain above the root of the next tree, in the pass that
    computes the root, so a draft of d tokens costs d passes. The caller and the sampler see the
    tree as rooted at the last token of the text, whatever is above it.

    Invariant: the session holds ``_held``; ``missing()`` are the tokens between it and the root.

    Args:
        session: empty; owned by this context from now on.
        prefill_at_once: tokens that ``catch_up`` prefills.

    """

    def __init__(self, session: Session, prefill_at_once: int) -> None:
        self._session = session
        self.prefill_at_once = prefill_at_once
        self._sampler: Sampler | None = None
        self._held: list[int] = []
        # The round: the caller's tree, the session's own (with the missing tokens above it), how
        # many those are, nodes pending in the session, passes, and the last pass's rows.
        self._tree: TokenTree | None = None
        self._own = TokenTree(0)
        self._lag = self._pending = self._passes = 0
        self._rows: Rows | None = None

    # -- the text -------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another request; the prefix shared with the last one stays cached."""

    @abstractmethod
    def make_room(self, nodes: int) -> int:
        """Return how many nodes, including the root, can be computed; asks for ``nodes``."""

    @abstractmethod
    def missing(self) -> Sequence[int]:
        """Return the tokens before the root that the session lacks."""

    def behind(self) -> int:
        """Return how many tokens to prefill before the next pass; 0 if it can include them."""
        missing = len(self.missing())
        return missing if missing > RIDE_ALONG else 0

    def catch_up(self) -> bool:
        """Prefill the missing tokens, or a chunk if they are many; return whether all are done."""
        self._drop()
        missing = self.missing()
        self._prefill(missing[: self.prefill_at_once])
        return len(missing) <= self.prefill_at_once

    def cut(self, length: int) -> None:
        """Forget what the session holds beyond the text's first tokens, and an open round."""
        self._drop()
        self._rollback(min(length, len(self._held)))

    def _history(self) -> list[int]:
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler.history

    def _prefill(self, tokens: Sequence[int]) -> None:
        try:
            self._session.prefill(tokens)
        finally:
            # If interrupted between chunks, the chunks computed so far stay.
            self.hold(tokens[: self._session.length - len(self._held)])

    def hold(self, tokens: Sequence[int]) -> None:
        """Record that the session has committed these tokens."""
        self._held += tokens

    def _rollback(self, length: int) -> None:
        del self._held[go_back(self._session, length) :]

    # -- a round --------------------------------------------------------------------------------

    def rows(self, tree: TokenTree, masks: Sequence[int] = ()) -> Rows:
        """Return rows of the last pass over ``tree``, after computing any missing nodes.

        The first call for a tree ends any round left open before it. With ``masks``, its pass reads
        them below the root, and has the rows of the chain that is then drawn: there is no other.
        """
        if tree is not self._tree:
            self._open(tree)
        rows = self._rows
        if rows is None or (not masks and self._pending - self._lag < len(tree.tokens)):
            rows = self._rows = self._forward(tree, masks)
        return rows

    def confidence(self, node: int) -> float:
        """Return the probability of the most likely token after ``node``, among the top logits."""
        scores = self.top(node)
        best = scores[0]  # whose own share is the 1
        return 1 / sum([exp(logit - best) for logit in scores])

    def top(self, node: int) -> list[float]:
        """Return logits of the pass's top allowed tokens after ``node``, descending."""
        assert self._rows is not None, "no pass in this round: call rows() first"
        rows, scored = self._rows, self._rows.scored
        top = scored.top_logits[node - scored.start]
        if self._sampler is not None and self._sampler.constraint is not None:
            row = rows.own(node)
            top = row[filters.ranked(row, len(top))]
        scores: list[float] = top.tolist()
        return scores

    def chances(self, node: int, ids: IntArray) -> FloatArray:
        """Return the draft's probabilities of ``rows.best(node, len(ids))``, ``[len(ids)]``.

        When sampling, they are taken after temperature and filters. When greedy, which would make
        them one-hot, they are the model's own, since its certainty predicts how often the target
        agrees.
        """
        assert self._rows is not None, "no pass in this round: call rows() first"
        rows, scored = self._rows, self._rows.scored
        if self._sampler is not None and not self._sampler.params.greedy:
            return rows.probs(node)[ids]
        row = rows.own(node)
        weights: FloatArray = np.exp(row - row.max())
        weights /= weights.sum()
        return weights[: len(ids)] if scored.logits is None else weights[ids]

    def passes(self, tree: TokenTree) -> int:
        """Return the number of passes spent on this tree so far."""
        return self._passes if tree is self._tree else 0

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """End the round of this tree: commit the computed nodes of an accepted path."""
        if tree is not self._tree or not self._pending:
            return
        lag, pending = self._lag, self._pending
        nodes = [*range(lag), *(node + lag for node in path if node + lag < pending)]
        tokens = self._own.tokens_on(nodes)
        self._session.commit(nodes)
        self.hold(tokens)
        self._forget()

    def _open(self, tree: TokenTree) -> None:
        self._drop()
        missing = self.missing()
        if len(missing) > RIDE_ALONG:
            self._prefill(missing)
            missing = []
        self._tree, self._lag = tree, len(missing)
        self._own = TokenTree.chain([*missing, tree.tokens[0]]) if missing else tree

    def _forward(self, tree: TokenTree, masks: Sequence[int]) -> Rows:
        own, lag, start = self._own, self._lag, self._pending
        if lag:
            for node in range(len(own.tokens) - lag, len(tree.tokens)):
                own.add(tree.tokens[node], tree.parents[node] + lag)
        if masks:
            own = TokenTree.chain([*own.tokens, *masks])
        sampler = self._sampler
        assert sampler is not None
        scored = self._compute(own, start, sampler)
        # Masks are never kept: as far as the text goes, they were not computed.
        self._pending = len(own.tokens) - len(masks)
        self._passes += 1
        return sampler.rows(scored.below(lag) if lag else scored, tree, Purpose.DRAFT)

    def _compute(self, own: TokenTree, start: int, sampler: Sampler) -> Pass:
        """Compute the nodes of the session's tree from ``start`` on."""
        return self._session.forward(own, start, sampler.want)

    def _forget(self) -> None:
        self._tree, self._own = None, TokenTree(0)
        self._lag = self._pending = self._passes = 0
        self._rows = None

    def _drop(self) -> None:
        """End an open round, even one that an exception left unfinished."""
        del self._held[self._session.length :]  # interrupted after a rollback
        if self._pending or self._session.length != len(self._held):
            self._rollback(len(self._held))
        self._forget()

    # -- memory ---------------------------------------------------------------------------------

    def states(self) -> dict[str, DrafterState]:
        return {}

    def evict(self, *, kept: bool = False) -> None:
        """Empty the session and release its memory, unless it is ``kept``."""
        if not kept:
            self._empty()
            if isinstance(self._session, Trimmable):
                self._session.trim()

    def _empty(self) -> None:
        self._drop()
        self._rollback(0)

    def close(self) -> None:
        self._session.close()


def no_model(name: str) -> InputError:
    """Return the error for a drafter that was built without the draft model it needs."""
    other = drafting.default(with_model=False)
    return InputError(f"drafter {name!r} needs a draft model: give one, or use {other!r}")


class Window:
    """The first and the last tokens of a text that exceeds the window (StreamingLLM, 2309.17453).

    The window grows until it is full; then its older half is dropped and the rest computed again,
    since positions count within it. That prefills one token for each token of text, in large
    chunks, and costs far less than the draft passes. The target sees the whole text, so only the
    acceptance rate can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:ATTENTION_SINKS], *text[ATTENTION_SINKS + self.left_out :]]

    def behind(self, text: Sequence[int], held: int) -> Sequence[int]:
        """Return the part that is seen behind its first ``held`` tokens."""
        if held < ATTENTION_SINKS:
            return self.of(text)[held:]
        return text[held + self.left_out :]

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > ATTENTION_SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the window is too small for that, or nothing was left out and nothing is.
        """
        if self.size < _LEAST:
            return None
        before = self.left_out
        self.left_out = max(0, len(text) - ATTENTION_SINKS - self.size // 2)
        return ATTENTION_SINKS if before or self.left_out else None


class DraftContext(Context):
    """Owner of a draft session that keeps it a prefix of the text.

    Invariant: the session holds a prefix of what its window shows of ``sampler.history[:-1]``: all
    of it, unless the text is longer than the session.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.draft is None:
            raise no_model(name)
        session, self._widest = translated(parts.draft, parts.translation)
        super().__init__(session, parts.prefill_at_once)
        self._window = Window(session.capacity)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._drop()
        shared = shared_length(self._held, self._window.of(prompt[:-1]))
        if self._window.left_out and (shared < len(self._held) or not self._window.goes_on(prompt)):
            self._window.left_out = 0
            shared = shared_length(self._held, prompt[:-1])
        self._rollback(shared)

    def room(self) -> int:
        """Return how many nodes, including the root, can still be computed in one round."""
        seen = len(self._history()) - self._window.left_out
        return min(self._window.size - seen + 1, self._widest)

    def make_room(self, nodes: int) -> int:
        """Return ``room()``; if that is less than ``nodes``, slide the context window first.

        Sliding ends an open round; the tokens that the session then lacks count as ``behind``.
        """
        room = self.room()
        if room >= min(nodes, self._window.size // 4):
            return room
        self._drop()
        kept = self._window.slide(self._history())
        if kept is not None:
            self._rollback(min(kept, len(self._held)))
        return self.room()

    def missing(self) -> Sequence[int]:
        return self._window.behind(self._history(), len(self._held))[:-1]

    # -- saving ---------------------------------------------------------------------------------

    def states(self) -> dict[str, DrafterState]:
        return {"draft": self}

    @property
    def empty(self) -> bool:
        """See ``DrafterState``; True for an unloaded model as well."""
        return not self._held

    def save(self, file: BinaryIO) -> None:
        """See ``DrafterState``: the draft's keys and values."""
        left_out = self._window.left_out
        snapshot.write(file, runtime=_SAVED_AS, model="", length=left_out, payload=[])
        self._session.save(file)

    def load(self, file: BinaryIO, text: Sequence[int]) -> None:
        self._drop()
        left_out, _ = snapshot.read(file, runtime=_SAVED_AS, model="", most=0)
        self._session.load(file)
        self._window.left_out = left_out
        self._held = list(self._window.of(text)[: self._session.length])
        self._rollback(len(self._held))
