"""A head drafts a chain from the target's residual streams (EAGLE-3, 2503.01840)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from edgedec.decoding.drafting._head_round import Round, Waiting
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftStep,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.prefill import go_back, shared_length
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import Session
from edgedec.decoding.session_abilities import HeadModel, HeadSession, Trimmable
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.errors import InputError

# Up to this many missing pairs are computed in the next pass; more are prefilled before it.
_RIDE_ALONG = 8
# States that are kept for a head that does not draft; with more it begins anew when it does.
_MOST_WAITING = 256
# Tokens that a target reads again if it has cached them and the head has not.
_READ_AGAIN = 256


class HeadDrafter:
    """Draws tokens one by one from a head, which sees the target's states of the text.

    Pair p is token p + 1 with the target's state of token p; its row predicts token p + 2. The
    session holds pairs of the text alone: what was drafted is dropped, and read again with the
    target's states if it was accepted (to keep it costs 8% to 15% of the accepted length).

    Invariant: the session holds the pairs of ``_held``, those from ``_first`` on; ``_waiting`` has
    the states of the pairs after them, as far as the target has computed them.

    Args:
        parts: with a head and a session of it.

    Raises:
        InputError: there is none.

    """

    name = "head"
    reads_states = True

    def __init__(self, parts: DrafterParts) -> None:
        if parts.head is None or parts.head_session is None:
            raise InputError(
                f"drafter {self.name!r} needs a head, which reads the target's states: export the"
                " target with --head, or use 'lookup'"
            )
        self._head: HeadModel = parts.head
        self._session: HeadSession = parts.head_session
        self.rivals = parts.rivals
        self._sampler: Sampler | None = None
        # Of the text: where it begins behind the prompt, and what the head has not seen.
        self._begins = self._first = 0
        self._held: list[int] = []
        self._waiting = Waiting()
        self._round: Round | None = None
        # Whether it was told to give its memory back: it computes nothing until it is kept again.
        self._evicted = False

    # -- following the text ---------------------------------------------------------------------

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Follow another request; pairs of the prefix shared with the last one stay cached."""
        self._drop()
        before = [] if self._sampler is None else self._sampler.history
        left = shared_length(before, prompt) - 1 - self._first
        if left <= 0:
            self._restart(0)
        else:
            self._waiting.clear()
            self._rollback(min(left, len(self._held)))
        self._sampler, self._begins = sampler, len(prompt) - 1

    def attach(self, target: Session) -> None:
        """See ``ReadsStates``: the target is made to read again a little that the head lacks."""
        if self._known < target.length <= self._known + _READ_AGAIN:
            go_back(target, self._known)
        elif self._known < target.length:
            self._restart(target.length)

    def read(self, position: int, states: FloatArray) -> None:
        """See ``ReadsStates``: keep the states of a round, or prefill those of a prompt's chunk.

        A round without a draft costs a copy, no more.
        """
        self._drop()
        if position > self._known:  # a part was never seen
            self._restart(position)
        states = states[self._known - position :]
        if not len(states):
            return
        of_prompt = position < self._begins
        if self._evicted or (not of_prompt and len(self._waiting) + len(states) > _MOST_WAITING):
            self._restart(self._known + len(states) - 1)
            states = states[-1:]
        self._waiting.add(states)
        if of_prompt and not self._evicted:
            self._prefill(len(self._waiting) - 1)

    @property
    def _known(self) -> int:
        """Return the number of the text's first tokens whose states were read."""
        return self._first + len(self._held) + len(self._waiting)

    def _next_tokens(self, count: int) -> list[int]:
        """Return the tokens of the next pairs."""
        assert self._sampler is not None, "propose() before begin()"
        first = self._first + len(self._held) + 1
        return self._sampler.history[first : first + count]

    def _prefill(self, count: int) -> None:
        if self._session.length + count > self._session.capacity:
            self._restart(self._known)
            return
        if not count:
            return
        tokens = self._next_tokens(count)
        self._session.carry(self._head.fuse(self._waiting.first(count)))
        self._session.prefill(tokens)
        self._keep(tokens)

    def _keep(self, tokens: Sequence[int]) -> None:
        self._held += tokens
        self._waiting.drop(len(tokens))

    def _restart(self, position: int) -> None:
        """Forget all pairs before a position of the text."""
        self._drop()
        self._rollback(0)
        self._first = position
        self._waiting.clear()

    def _rollback(self, length: int) -> None:
        self._session.rollback(length)
        del self._held[length:]

    # -- drafting -------------------------------------------------------------------------------

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        self._drop()
        tree = TokenTree(root)
        q: dict[int, FloatArray] = {}
        draft = Draft(tree, q, self.name)
        length = min(limits.nodes, limits.depth)
        if length <= 0 or not self._ready(length):
            return draft
        leaf = 0

        def confidence() -> float:
            return self._open_round(tree).confidence(leaf)

        def token() -> int:
            return self._open_round(tree).rows.draw(leaf)

        shown = token if streams.coupled else None
        offer = Offer(self.name, confidence, shown, costly=True, rivals=self.rivals)
        behind = len(self._waiting) - 1
        if behind > _RIDE_ALONG:
            if not go_on(DraftStep(offer, behind=behind)):
                return draft
            self._prefill(behind)
        while leaf < length and go_on(DraftStep(offer, leaf, leaf)):
            rows = self._open_round(tree).rows
            if not streams.coupled:
                q[leaf] = rows.probs(leaf)
            leaf = tree.add(rows.draw(leaf), leaf)
        draft.passes = 0 if self._round is None else self._round.passes
        return draft

    def _ready(self, length: int) -> bool:
        """Return whether the states before the root are known, and a draft fits."""
        assert self._sampler is not None, "propose() before begin()"
        # Tokens that a constraint forced have no states yet.
        if not len(self._waiting) or self._known != len(self._sampler.history) - 1:
            return False
        if self._session.length + len(self._waiting) + length > self._session.capacity:
            self._restart(self._known)
            return False
        return True

    def _open_round(self, tree: TokenTree) -> Round:
        """Return the round of ``tree``, after computing any missing nodes."""
        sampler = self._sampler
        assert sampler is not None, "propose() before begin()"
        if self._round is None:
            count = len(self._waiting)
            pairs, carried = self._next_tokens(count), self._head.fuse(self._waiting.first(count))
            self._round = Round(self._session, sampler, TokenTree.chain(pairs), carried)
        self._round.reach(tree)
        return self._round

    def observe(self, feedback: RoundFeedback) -> None:
        """Keep the pairs up to the root's; later ones come with the target's states."""
        if self._round is None:
            return
        pairs = self._round.pairs
        self._session.commit(range(pairs))
        self._keep(self._next_tokens(pairs))
        self._round = None

    def _drop(self) -> None:
        """End an open round, even one that an exception left unfinished."""
        if self._round is not None:
            self._round = None
            self._session.rollback(len(self._held))

    # -- memory ---------------------------------------------------------------------------------

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``: the head then sees the text from where it is kept again."""
        self._evicted = self.name not in keep
        if self._evicted:
            self._restart(self._known)
            if isinstance(self._session, Trimmable):
                self._session.trim()

    def close(self) -> None:
        self._session.close()


def state_bytes(head: HeadModel) -> int:
    """Return the most bytes of states that one drafter, and its target's passes, keep for a head.

    A target's pass shows those of a chunk, in buffers of twice its rows; they are copied, and
    joined with those that wait.
    """
    rows = 2 * PREFILL_CHUNK + 2 * (_MOST_WAITING + PREFILL_CHUNK)
    return rows * head.state_width * np.dtype(np.float32).itemsize


INFO = DrafterInfo(needs_head=True)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return HeadDrafter(parts)
