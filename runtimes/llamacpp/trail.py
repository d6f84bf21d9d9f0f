"""How a session goes back in a recurrent model, or in a hybrid of recurrent and attention layers.

Their state has no rows to remove. Some of llama.cpp's graphs keep the states after the last tokens
of a pass, ``Context.kept`` of them (``n_rs_seq``): these tokens are dropped at no cost, once. For
all other lengths there are copies of the recurrent state, two at most: from the end of the last
prefill, where the next prompt of a conversation often parts from this text, and a recent one. The
tokens that follow a copy are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.errors import SessionError
from edgedec.runtimes.llamacpp.context import CHUNK, Context, State

# A copy is as old as this, in tokens, before it is replaced, and a prefill as long before its end
# gets one: computing so many takes longer than copying.
_OLD, _LONG = 64, 16


class Trail:
    """The tokens and the copies of one session's state."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin with an empty cache."""
        # Lengths, ascending, and their states; none is the empty one.
        self._copies: list[tuple[int, State | None]] = [(0, None)]
        self._tokens: list[int] = []  # since the first copy
        self._droppable = 0

    @property
    def end(self) -> int:
        """The length of the state, with pending tokens."""
        return self._copies[0][0] + len(self._tokens)

    # -- going on -------------------------------------------------------------------------------

    def computed(self, context: Context, tokens: Sequence[int]) -> None:
        """Follow a pass over these tokens."""
        self._tokens += tokens
        # The state before the pass is not among those that are kept.
        self._droppable = min(context.kept, len(tokens) - 1)

    def prefilled(self, context: Context, count: int) -> None:
        """Copy the state after a chunk of a prompt.

        Where all rows are to be exact, a prompt is not computed again in other chunks.
        """
        if count >= _LONG or context.exact:
            self.begin(context, self.end)

    def begin(self, context: Context, length: int) -> None:
        """Copy the state of a text of this length, and forget what was before."""
        self._copies = [(length, context.sequence(0, recurrent=True) if length else None)]
        self._tokens = []

    def committed(self, context: Context) -> None:
        """Copy the state, of which all tokens are committed, if the last copy is old."""
        if self.end - self._copies[-1][0] >= _OLD:
            self._copy(context)

    def moved(self) -> None:
        """Follow the state into another context, which does not keep earlier ones."""
        self._droppable = 0

    # -- going back -----------------------------------------------------------------------------

    def nearest(self, length: int) -> int:
        """Return the greatest length, up to this one, that ``go_back`` reaches."""
        copied = max((at for at, _ in self._copies if at <= length), default=None)
        if self._drops(length) or (copied is not None and length - copied <= _OLD + CHUNK):
            return length
        return copied or 0

    def go_back(self, context: Context, length: int) -> None:
        """Go back to a length that is its own ``nearest``.

        Raises:
            SessionError: a pass over earlier tokens failed; the cache is in no state to go on.

        """
        if length == self.end:
            return
        if not self._drops(length) or not context.remove(0, length):
            self.repeat(context, length)
        elif length < self._copies[0][0]:
            self._droppable = 0
            self.begin(context, length)
        else:
            self._forget(length)

    def repeat(self, context: Context, length: int) -> None:
        """Go back by a copy and its next tokens, whatever a failed pass left in the cache."""
        self._forget(length)
        at, state = self._copies[-1]
        if state is None:
            context.clear()
        elif not context.put_sequence(state, 0, recurrent=True) or not context.remove(0, at):
            raise SessionError("llama.cpp refuses a state of its own")
        again = self._tokens[at - self._copies[0][0] :]
        for start in range(0, len(again), context.rows):
            context.run(again[start : start + context.rows], at + start, head=False)
        if again:
            self._copy(context)

    def fork(self) -> Trail:
        """Return the trail of a copy of the session, in another context."""
        other = Trail()
        other._copies, other._tokens = [*self._copies], [*self._tokens]
        return other

    def _drops(self, length: int) -> bool:
        return self.end - length <= self._droppable

    def _forget(self, length: int) -> None:
        del self._tokens[length - self._copies[0][0] :]
        self._copies = [one for one in self._copies if one[0] <= length]
        self._droppable = 0

    def _copy(self, context: Context) -> None:
        self._copies[1:] = [(self.end, context.sequence(0, recurrent=True))]
