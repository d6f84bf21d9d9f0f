"""How a session goes back in a recurrent model, or in a hybrid of recurrent and attention layers.

Some of llama.cpp's graphs keep the states after the last tokens of a pass, ``Context.kept`` of them
(``n_rs_seq``): these tokens are dropped at no cost, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding import trail
from edgedec.errors import SessionError
from edgedec.runtimes.llamacpp.context import Context, State


class Trail(trail.Trail[Context, State]):
    """The tokens and the copies of one session's state."""

    def _free(self, cache: Context, count: int) -> int:
        return min(cache.kept, count - 1)  # the state before the pass is not among them

    def _drop(self, cache: Context, length: int) -> bool:
        return cache.remove(0, length)

    def _state(self, cache: Context, length: int) -> State:
        return cache.sequence(0, recurrent=True)

    def _put(self, cache: Context, state: State | None, length: int) -> None:
        if state is None:
            cache.clear()
        elif not cache.put_sequence(state, 0, recurrent=True) or not cache.remove(0, length):
            raise SessionError("llama.cpp refuses a state of its own")

    def _read(self, cache: Context, tokens: Sequence[int], at: int) -> None:
        for start in range(0, len(tokens), cache.rows):
            cache.run(tokens[start : start + cache.rows], at + start, head=False)

    def _exact(self, cache: Context) -> bool:
        return cache.exact
