"""How a session goes back whose layers do not all keep a row for each token.

A recurrence or a convolution keeps a state of fixed size, which does not grow with the text, and
has no rows to remove. A runtime keeps something of the last passes beside it (the inputs of their
tokens, or states of its own), by which tokens are dropped at no cost. For all other lengths there
are copies of the state, two at most: from the end of the last prefill, where the next prompt of a
conversation often parts from this text, and a recent one. The tokens that follow a copy are read
again. One state has one past, so that such sessions verify chains only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.errors import CannotRollback

C = TypeVar("C")
S = TypeVar("S")

# A copy is as old as this, in tokens, before it is replaced, and a prefill as long before its end
# gets one: computing so many takes longer than copying.
_OLD, _LONG = 64, 16


class Trail(ABC, Generic[C, S]):
    """The tokens and the copies of one session's state; a runtime adds how they are kept.

    ``C`` is the runtime's cache, ``S`` a copy of its state.
    """

    def __init__(self) -> None:
        self.clear()

    # -- implemented by a runtime ---------------------------------------------------------------

    @abstractmethod
    def _drop(self, cache: C, length: int) -> bool:
        """Drop the tokens after ``length`` at no cost; False, without a change, if it cannot."""

    @abstractmethod
    def _state(self, cache: C, length: int) -> S:
        """Return a copy of the state after ``length`` tokens, where the cache is now."""

    @abstractmethod
    def _put(self, cache: C, state: S | None, length: int) -> None:
        """Go to a copy of the state after ``length`` tokens; None is the empty one."""

    @abstractmethod
    def _read(self, cache: C, tokens: Sequence[int], at: int) -> None:
        """Compute tokens again, behind ``at`` others."""

    @abstractmethod
    def _exact(self, cache: C) -> bool:
        """Return whether rows have the same bits in passes of the widths that verify drafts."""

    def _free(self, cache: C, count: int) -> int:
        """Return how many of the last tokens can be dropped, once, after a pass of ``count``."""
        return 0

    def _drops(self, length: int) -> bool:
        """Return whether the tokens after ``length`` can be dropped at no cost."""
        return self.end - length <= self._droppable

    # -- going on -------------------------------------------------------------------------------

    def clear(self) -> None:
        """Begin with an empty cache."""
        # Lengths, ascending, and their states; none is the empty one.
        self._copies: list[tuple[int, S | None]] = [(0, None)]
        self._tokens: list[int] = []  # since the first copy
        self._droppable = 0

    @property
    def end(self) -> int:
        """The length of the state, with pending tokens."""
        return self._copies[0][0] + len(self._tokens)

    def computed(self, cache: C, tokens: Sequence[int]) -> None:
        """Follow a pass over these tokens."""
        self._tokens += tokens
        self._droppable = self._free(cache, len(tokens))

    def prefilled(self, cache: C, count: int) -> None:
        """Copy the state after a chunk of a prompt.

        Where all rows are to be exact, a prompt is not computed again in other chunks.
        """
        if count >= _LONG or self._exact(cache):
            self.begin(cache, self.end)

    def begin(self, cache: C, length: int) -> None:
        """Copy the state of a text of this length, and forget what was before."""
        self._copies = [(length, self._state(cache, length) if length else None)]
        self._tokens = []

    def committed(self, cache: C) -> None:
        """Copy the state, of which all tokens are committed, if the last copy is old."""
        if self.end - self._copies[-1][0] >= _OLD:
            self._copy(cache)

    def moved(self) -> None:
        """Follow the state into another cache, in which no token can be dropped at no cost."""
        self._droppable = 0

    # -- going back -----------------------------------------------------------------------------

    def check(self, length: int) -> None:
        """Raise CannotRollback for a length that is not its own ``nearest``."""
        nearest = self.nearest(length)
        if nearest != length:
            raise CannotRollback(
                f"a recurrent model cannot go back to {length} tokens: {nearest} is possible",
                nearest,
            )

    def nearest(self, length: int) -> int:
        """Return the greatest length, up to this one, that ``go_back`` reaches."""
        copied = max((at for at, _ in self._copies if at <= length), default=None)
        near = copied is not None and length - copied <= _OLD + PREFILL_CHUNK
        if near or self._drops(length):
            return length
        return copied or 0

    def go_back(self, cache: C, length: int) -> None:
        """Go back to a length that is its own ``nearest``.

        Raises:
            SessionError: a pass over earlier tokens failed; the cache is in no state to go on.

        """
        if length == self.end:
            return
        if length == 0:
            self._put(cache, None, 0)
            self.clear()
        elif not self._drops(length) or not self._drop(cache, length):
            self.repeat(cache, length)
        elif length < self._copies[0][0]:
            self._droppable = 0
            self.begin(cache, length)
        else:
            self._forget(length)

    def repeat(self, cache: C, length: int) -> None:
        """Go back by a copy and its next tokens, whatever a failed pass left in the cache."""
        self._forget(length)
        at, state = self._copies[-1]
        self._put(cache, state, at)
        again = self._tokens[at - self._copies[0][0] :]
        if again:
            self._read(cache, again, at)
            self._copy(cache)

    def follow(self, other: Trail[C, S]) -> None:
        """Take over the tokens and copies of another trail, whose cache was copied."""
        self._copies, self._tokens = [*other._copies], [*other._tokens]
        self._droppable = 0

    def _forget(self, length: int) -> None:
        del self._tokens[length - self._copies[0][0] :]
        self._copies = [one for one in self._copies if one[0] <= length]
        self._droppable = 0

    def _copy(self, cache: C) -> None:
        self._copies[1:] = [(self.end, self._state(cache, self.end))]
