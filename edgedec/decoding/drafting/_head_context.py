"""Keeps a target's head in step with the text, of which it reads the target's residual streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.decoding.drafting._context import Scores
from edgedec.decoding.drafting._head_round import Round, Waiting
from edgedec.decoding.drafting.base import DrafterParts, DrafterState
from edgedec.decoding.prefill import go_back, shared_length
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.session import HeadModel, HeadSession, Session, Trimmable
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import InputError

# Up to this many missing pairs are computed in the next pass; more are prefilled before it.
_RIDE_ALONG = 8
# States that are kept for a head that does not draft; with more it begins anew when it does.
_MOST_WAITING = 256
# Tokens that a target reads again if it has cached them and the head has not.
_READ_AGAIN = 256


class HeadContext:
    """Owner of a head's session: implements ``Context``.

    Pair p is token p + 1 with the target's state of token p; its row predicts token p + 2. The
    session holds pairs of the text alone: what was drafted is dropped, and read again with the
    target's states if it was accepted (to keep it costs 8% to 15% of the accepted length).

    Invariant: the session holds the pairs of ``_held``, those from ``_first`` on; ``_waiting`` has
    the states of the pairs after them, as far as the target has computed them.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.head is None or parts.head_session is None:
            raise InputError(
                f"drafter {name!r} needs a head, which reads the target's states: export the"
                " target with --head, or use 'lookup'"
            )
        self._head: HeadModel = parts.head
        self._session: HeadSession = parts.head_session
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
        """See ``Context``; pairs of the prefix shared with the last request stay cached."""
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

    def _history(self) -> list[int]:
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler.history

    def _next_tokens(self, count: int) -> list[int]:
        """Return the tokens of the next pairs."""
        first = self._first + len(self._held) + 1
        return self._history()[first : first + count]

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

    def make_room(self, nodes: int) -> int:
        """See ``Context``: none where the states before the root are not known.

        With too little room for ``nodes`` it forgets the text before the root.
        """
        self._drop()
        # Tokens that a constraint forced have no states yet.
        if not len(self._waiting) or self._known != len(self._history()) - 1:
            return 0
        room = self._session.capacity - self._session.length - len(self._waiting) + 1
        if room > nodes:
            return room
        self._restart(self._known)
        return 0

    def behind(self) -> int:
        """See ``Context``."""
        missing = len(self._waiting) - 1
        return missing if missing > _RIDE_ALONG else 0

    def catch_up(self) -> bool:
        """See ``Context``."""
        self._drop()
        self._prefill(len(self._waiting) - 1)
        return True

    def rows(self, tree: TokenTree, masks: Sequence[int] = ()) -> Rows:
        """See ``Context``; a head has no masks."""
        return self._reach(tree).rows

    def confidence(self, node: int) -> float:
        """See ``Scores``."""
        return self._scores().confidence(node)

    def chances(self, node: int, ids: IntArray) -> FloatArray:
        """See ``Scores``."""
        return self._scores().chances(node, ids)

    def passes(self, tree: TokenTree) -> int:
        """See ``Context``."""
        return 0 if self._round is None or self._round.tree is not tree else self._round.passes

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Keep the pairs up to the root's; those of the path come with the target's states."""
        if self._round is None or self._round.tree is not tree:
            return
        pairs = self._round.pairs
        self._session.commit(range(pairs))
        self._keep(self._next_tokens(pairs))
        self._round = None

    def _reach(self, tree: TokenTree) -> Scores:
        """Return the scores of the round of ``tree``, after computing any missing nodes."""
        if self._round is None or self._round.tree is not tree:
            self._drop()
            count, sampler = len(self._waiting), self._sampler
            assert sampler is not None, "propose() before begin()"
            carried = self._head.fuse(self._waiting.first(count))
            pairs = TokenTree.chain(self._next_tokens(count))
            self._round = Round(self._session, sampler, tree, pairs, carried)
        return self._round.reach()

    def _scores(self) -> Scores:
        found = self._round and self._round.scores
        assert found, "no pass in this round: call rows() first"
        return found

    def _drop(self) -> None:
        """End an open round, even one that an exception left unfinished."""
        if self._round is not None:
            self._round = None
            self._session.rollback(len(self._held))

    # -- memory ---------------------------------------------------------------------------------

    def states(self) -> dict[str, DrafterState]:
        """See ``Stateful``: none; the target reads a little again, or the head begins anew."""
        return {}

    def evict(self, *, kept: bool = False) -> None:
        """See ``Evictable``: the head then sees the text from where it is kept again."""
        self._evicted = not kept
        if self._evicted:
            self._restart(self._known)
            if isinstance(self._session, Trimmable):
                self._session.trim()

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def state_bytes(head: HeadModel) -> int:
    """Return the most bytes of states that one drafter, and its target's passes, keep for a head.

    A target's pass shows those of a chunk, in buffers of twice its rows; they are copied, and
    joined with those that wait.
    """
    rows = 2 * PREFILL_CHUNK + 2 * (_MOST_WAITING + PREFILL_CHUNK)
    return rows * head.state_width * np.dtype(np.float32).itemsize
