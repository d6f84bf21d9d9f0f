"""Keeps a target's head in step with the text, of which it reads the target's residual streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.prefill import go_back, shared_length
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import HeadModel, HeadSession, Pass, Session
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError

# States that are kept for a head that does not draft; with more it begins anew when it does.
_MOST_WAITING = 256
# Tokens that a target reads again if it has cached them and the head has not.
_READ_AGAIN = 256


class Waiting:
    """States that were read and are not in the session yet, joined when they are needed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
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


class HeadContext(Context):
    """Owner of a head's session.

    Pair p is token p + 1 with the target's state of token p; its row predicts token p + 2. The
    session holds pairs of the text alone: what was drafted is dropped, and read again with the
    target's states if it was accepted (to keep it costs 8% to 15% of the accepted length). A pass
    computes the missing pairs with the root's, or one layer of the tree.

    Invariant: the session holds the pairs of ``_held``, those from ``_first`` on; ``_waiting`` has
    the states of the pairs after them, as far as the target has computed them.
    """

    _session: HeadSession

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.head is None or parts.head_session is None:
            raise InputError(
                f"drafter {name!r} needs a head, which reads the target's states: export the"
                " target with --head, or use 'lookup'"
            )
        super().__init__(parts.head_session, parts.prefill_at_once)
        self._head: HeadModel = parts.head
        # Of the text: where it begins behind the prompt, and what the head has not seen.
        self._begins = self._first = 0
        self._waiting = Waiting()
        # What the last pass handed on, and the first of its nodes.
        self._carried, self._start = np.empty((0, 0), np.float32), 0
        # Whether it was told to give its memory back: it computes nothing until it is kept again.
        self._evicted = False

    # -- following the text ---------------------------------------------------------------------

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._drop()
        before = [] if self._sampler is None else self._sampler.history
        left = shared_length(before, prompt) - 1 - self._first
        if left <= 0:
            self._restart(0)
        else:
            self._waiting.clear()
            self._rollback(min(left, len(self._held)))
        self._sampler, self._begins = sampler, len(prompt) - 1

    def attach(self, target: Session) -> bool:
        """See ``ReadsStates``: the target is made to read again a little that the head lacks."""
        if self._known < target.length <= self._known + _READ_AGAIN:
            go_back(target, self._known)
        elif self._known < target.length:
            self._restart(target.length)
        return True

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
            self._prefill(self.missing())

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

    @property
    def _known(self) -> int:
        """Return the number of the text's first tokens whose states were read."""
        return self._first + len(self._held) + len(self._waiting)

    def missing(self) -> Sequence[int]:
        # The last pair is the root's.
        first = self._first + len(self._held) + 1
        return self._history()[first : first + max(0, len(self._waiting) - 1)]

    def _prefill(self, tokens: Sequence[int]) -> None:
        if self._session.length + len(tokens) > self._session.capacity:
            self._restart(self._known)
        elif tokens:
            self._session.carry(self._head.fuse(self._waiting.first(len(tokens))))
            super()._prefill(tokens)

    def hold(self, tokens: Sequence[int]) -> None:
        super().hold(tokens)
        self._waiting.drop(len(tokens))

    def _restart(self, position: int) -> None:
        """Forget all pairs before a position of the text."""
        super()._empty()
        self._first = position
        self._waiting.clear()

    def _empty(self) -> None:
        self._restart(self._known)

    # -- a round --------------------------------------------------------------------------------

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Keep the pairs up to the root's; those of the path come with the target's states."""
        super().keep(tree, path[:1])

    def _compute(self, own: TokenTree, start: int, sampler: Sampler) -> Pass:
        if start:
            above = [parent - self._start for parent in own.parents[start:]]
            self._session.carry(self._carried[above])
        else:
            self._session.carry(self._head.fuse(self._waiting.first(len(own))))
        scored = super()._compute(own, start, sampler)
        assert scored.states is not None, "a head's passes show what they hand on"
        self._carried, self._start = scored.states, start
        return scored

    def evict(self, *, kept: bool = False) -> None:
        """See ``Evictable``: the head then sees the text from where it is kept again."""
        self._evicted = not kept
        super().evict(kept=kept)


def state_bytes(head: HeadModel) -> int:
    """Return the most bytes of states that one drafter, and its target's passes, keep for a head.

    A target's pass shows those of a chunk, in buffers of twice its rows; they are copied, and
    joined with those that wait.
    """
    rows = 2 * PREFILL_CHUNK + 2 * (_MOST_WAITING + PREFILL_CHUNK)
    return rows * head.state_width * np.dtype(np.float32).itemsize
