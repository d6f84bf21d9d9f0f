"""Protocols that only some sessions implement; callers test for them with ``isinstance``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from edgedec.decoding.session import Model, Session
from edgedec.decoding.tree import FloatArray


class Phase(enum.Enum):
    """State of a pass over streamed weights."""

    LOAD = "load"
    COMPUTE = "compute"


OnPhase = Callable[[Phase], None]
# Called with the position of the first token, and ``[tokens, taps * hidden]`` float32, which is
# valid during the call only.
OnStates = Callable[[int, FloatArray], None]


@runtime_checkable
class Trimmable(Protocol):
    """A session that can give memory back."""

    def trim(self) -> None:
        """Give back memory that the committed tokens do not need; no tree may be pending."""
        ...


@runtime_checkable
class Reserving(Protocol):
    """A session that can allocate its cache for a number of tokens at once.

    Attributes:
        allocated: tokens that fit in the memory allocated now.

    """

    allocated: int

    def reserve(self, tokens: int) -> None:
        """Allocate the cache for this many tokens, so that it need not grow; PassFailed if full."""
        ...


@runtime_checkable
class Rehearsing(Protocol):
    """A session that can warm up with the largest passes of a long context."""

    def rehearse(self, length: int, rows: int) -> None:
        """Run a prefill chunk and a pass of ``rows`` rows as if after ``length`` tokens.

        Afterwards the session is empty, as before, and its cache takes no memory.
        """
        ...


@runtime_checkable
class Tapped(Protocol):
    """A session that can show the residual streams of what it prefills."""

    def tap(self, on_states: OnStates | None) -> None:
        """Report the streams of each prefilled chunk once it is committed; None ends it.

        Raises:
            StateError: its model shows none (``Capabilities.taps``).

        """
        ...


@runtime_checkable
class Showing(Protocol):
    """A model that shows residual streams if it is told which, as its file does not say."""

    def show(self, layers: Sequence[int]) -> None:
        """Show the streams before these layers in sessions opened later, if that is possible.

        ``Capabilities.taps`` then has them.
        """
        ...


@runtime_checkable
class HeadSession(Session, Protocol):
    """A session of a head, which reads a state with each token.

    Its passes show what a row hands to the next one as ``Pass.states``.
    """

    def carry(self, rows: FloatArray) -> None:
        """Give the states of the tokens of the next call, ``[tokens, hidden]`` float32."""
        ...


@runtime_checkable
class HeadModel(Model, Protocol):
    """A head: a model whose sessions read states, and the fusion of its target's streams.

    Attributes:
        reads: layers of the target before which it reads the stream, as ``Capabilities.taps``.
        state_width: columns of the states that it fuses: taps * hidden.

    """

    @property
    def reads(self) -> tuple[int, ...]: ...

    @property
    def state_width(self) -> int: ...

    def fuse(self, states: FloatArray) -> FloatArray:
        """Return what a session carries for target states, ``[tokens, hidden]`` float32."""
        ...

    def open(self, capacity: int) -> HeadSession:
        """Return a new, empty session."""
        ...

    def blank(self, capacity: int) -> Session:
        """Return a session that reads zeros in place of states, to be measured like a model's."""
        ...


@runtime_checkable
class StreamedSession(Session, Protocol):
    """A session whose weights are larger than memory and pass through it (2309.04255)."""

    def watch(self, on_phase: OnPhase | None) -> None:
        """Report the phases of passes from now on; None ends it.

        ``on_phase`` runs in the thread that computes, at each change, and must be quick: a thread
        on the same cores may compute while weights load, but not while they are used.
        """
        ...
