"""The state machine of a session: committed and pending tokens, and refused calls.

A runtime's session inherits ``SessionBase``, or ``SnapshotSession`` if it can be saved, and
implements how its cache computes, keeps and drops rows. All checks and messages are here, so that
runtimes refuse the same calls in the same words.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO, ClassVar, Protocol, TypeVar

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, OnChunk, OnStates, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CapacityExceeded, Interrupted, StateError

# Tokens of a prompt that a prefill pass computes, unless a runtime says otherwise.
PREFILL_CHUNK = 128

Self = TypeVar("Self", bound="SessionBase")


class Stop(Protocol):
    """A request to stop a pass, with ``threading.Event``'s interface."""

    def set(self) -> None:
        """Stop the running pass, or the next one."""
        ...

    def clear(self) -> None:
        """Let passes run again."""
        ...

    def is_set(self) -> bool:
        """Return whether a stop is requested and not yet answered."""
        ...


class SessionBase(ABC):
    """Implements ``edgedec.decoding.session.Session`` on top of the methods that a runtime adds.

    The runtime's methods run after the checks and before ``_length``, ``_tree`` and ``_pending``
    change. If one raises, they stay as they are.

    Args:
        vocab_size: token ids are below it.
        stop: set by ``interrupt``; None creates an event.

    Attributes:
        prefill_chunk: tokens of a prompt that one pass computes.

    """

    prefill_chunk = PREFILL_CHUNK

    def __init__(
        self, capacity: int, vocab_size: int, capabilities: Capabilities, stop: Stop | None = None
    ) -> None:
        self.capacity = capacity
        self._vocab_size = vocab_size
        self._capabilities = capabilities
        self._stop: Stop = threading.Event() if stop is None else stop
        self._length = 0
        self._tree: TokenTree | None = None
        self._pending = 0
        self._on_states: OnStates | None = None
        self._closed = False

    # -- implemented by a runtime ----------------------------------------------------------------

    @abstractmethod
    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        """Compute ``nodes[start:]``; if it raises, none of them stay pending."""

    @abstractmethod
    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Move a path's rows to their committed positions, and drop the other nodes."""

    @abstractmethod
    def _copy(self: Self, length: int) -> Self:
        """Return a new session whose cache holds the first ``length`` tokens."""

    @abstractmethod
    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        """Compute and commit a prompt, usually chunk by chunk with ``_chunks``."""

    def _prefilled(self, count: int) -> FloatArray:
        """Return the states of the last prefill pass, whose tokens were ``count``."""
        raise NotImplementedError("a runtime with taps returns the states of its passes")

    def _cut(self, length: int) -> None:  # noqa: B027 - not every cache has anything to do
        """Drop rows beyond ``length``, unless the next pass overwrites them."""

    def _release(self) -> None:  # noqa: B027 - likewise
        """Release the cache."""

    # -- computing ------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return self._length

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        if self._closed:
            raise closed()
        if self._tree is not None:
            raise StateError(
                f"prefill(): expected no pending tree, got one of {self._pending} nodes:"
                " call commit() or rollback() first"
            )
        self._check_fits(tokens, len(tokens))
        self._prefill(tokens, on_chunk)

    def _chunks(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> Iterator[Sequence[int]]:
        """Yield a prompt in chunks; each counts as committed when the next one is requested."""
        for start in range(0, len(tokens), self.prefill_chunk):
            check_interrupt(self._stop)
            chunk = tokens[start : start + self.prefill_chunk]
            yield chunk
            self._length += len(chunk)
            if self._on_states is not None:
                self._on_states(self._length - len(chunk), self._prefilled(len(chunk)))
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def tap(self, on_states: OnStates | None) -> None:
        if self._closed and on_states is not None:
            raise closed()
        if on_states is not None and not self._capabilities.taps:
            raise StateError(
                "tap(): expected a model that shows its states, got one without: export it for a"
                " head"
            )
        self._on_states = on_states

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        if self._closed:
            raise closed()
        count = len(tree)
        if start != self._pending:
            raise StateError(
                f"forward(): expected start={self._pending}, the number of pending nodes,"
                f" got {start}: compute each node once, or call rollback() first"
            )
        if start >= count:
            raise StateError(
                f"forward(): expected more than the {start} nodes that are pending,"
                f" got a tree of {count}: add nodes to it first"
            )
        if not tree.is_chain:
            self._capabilities.check_branches(tree)
        if want & Want.STATES and not self._capabilities.taps:
            raise StateError("forward(): this model shows no states: export it for a head")
        self._check_fits(tree.tokens[start:] if start else tree.tokens, count)
        check_interrupt(self._stop)
        scored = self._score(tree, start, want)
        self._tree, self._pending = tree, count
        return scored

    # -- committing and going back --------------------------------------------------------------

    def commit(self, path: Sequence[int]) -> None:
        if self._closed:
            raise closed()
        tree = self._tree
        if tree is None:
            raise StateError("commit(): expected a pending tree, got none: call forward() first")
        if not tree.is_path(path) or (path and path[-1] >= self._pending):
            raise StateError(
                f"commit(): expected a path from the root of the {self._pending} pending nodes,"
                f" got {list(path)}: give nodes from parent to child"
            )
        self._keep(tree, path)
        self._length += len(path)
        self._tree, self._pending = None, 0

    def rollback(self, length: int) -> None:
        self._check_length("rollback", length)
        self._cut(length)
        self._length = length
        self._tree, self._pending = None, 0

    def fork(self: Self, length: int) -> Self:
        self._check_length("fork", length)
        other = self._copy(length)
        other._length = length
        return other

    # -- saving: implemented by ``SnapshotSession`` ---------------------------------------------

    def save(self, file: BinaryIO) -> None:
        raise self._not_saved("save")

    def load(self, file: BinaryIO) -> None:
        raise self._not_saved("load")

    # -- ending ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        self._stop.set()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._tree, self._pending = None, 0
            self._release()

    # -- checks ---------------------------------------------------------------------------------

    def _check_length(self, call: str, length: int) -> None:
        if self._closed:
            raise closed()
        if not 0 <= length <= self._length:
            raise StateError(
                f"{call}(): expected a length of 0..{self._length}, got {length}:"
                " only committed tokens can be kept"
            )

    def _check_fits(self, tokens: Sequence[int], count: int) -> None:
        """Refuse tokens outside the vocabulary, and more pending nodes than fit."""
        if self._length + count > self.capacity:
            raise CapacityExceeded(
                f"expected at most {self.capacity - self._length} tokens after the"
                f" {self._length} committed ones, got {count}:"
                f" open a session for more than {self.capacity}"
            )
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocab_size):
            outside = min(tokens) if min(tokens) < 0 else max(tokens)
            raise StateError(
                f"expected token ids 0..{self._vocab_size - 1}, got {outside}:"
                " encode the text with this model's tokenizer"
            )

    def _not_saved(self, call: str) -> StateError:
        """Return the error for saving or loading a session without snapshots."""
        if self._closed:
            return closed()
        return StateError(
            f"{call}(): expected a session with snapshots, got one without:"
            " compute the text again instead"
        )


def check_interrupt(stop: Stop) -> None:
    """Raise Interrupted, once, if a stop was requested."""
    if stop.is_set():
        stop.clear()
        raise Interrupted("interrupted")


def check_capacity(capacity: int, max_context: int) -> None:
    """Raise CapacityExceeded for a capacity below 1 or beyond the model's context."""
    if not 1 <= capacity <= max_context:
        raise CapacityExceeded(
            f"open(): expected a capacity of 1..{max_context} tokens, got {capacity}:"
            " stay within the model's context"
        )


def closed() -> StateError:
    """Return the error for a call to a closed session."""
    return StateError("the session is closed: open a new one")


class SnapshotSession(SessionBase):
    """Adds ``save`` and ``load`` for models whose ``Capabilities.snapshot`` is true.

    Attributes:
        runtime: its name in saved states.

    """

    runtime: ClassVar[str]

    # -- implemented by a runtime ----------------------------------------------------------------

    @abstractmethod
    def _fingerprint(self) -> str:
        """Return an identifier of the model that a saved state belongs to."""

    @abstractmethod
    def _state(self) -> snapshot.Payload:
        """Return the committed tokens' state, as bytes in parts."""

    @abstractmethod
    def _most_bytes(self) -> int:
        """Return the size of the largest state that fits this session, in bytes."""

    @abstractmethod
    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        """Restore what ``_state`` returned at ``length`` tokens; return how many are committed now.

        ``rest`` is the file after the state, for a session that saves several.
        """

    # -- saving ---------------------------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        self._check_saveable("save")
        model, payload = self._fingerprint(), self._state()
        snapshot.write(
            file, runtime=self.runtime, model=model, length=self._length, payload=payload
        )

    def load(self, file: BinaryIO) -> None:
        self._check_saveable("load")
        model, most = self._fingerprint(), self._most_bytes()
        length, payload = snapshot.read(file, runtime=self.runtime, model=model, most=most)
        if length > self.capacity:
            raise CapacityExceeded(
                f"load(): expected a state of at most {self.capacity} tokens, got {length}:"
                " open a larger session"
            )
        self._length = self._restore(payload, length, file)
        self._tree, self._pending = None, 0

    def _check_saveable(self, call: str) -> None:
        if self._closed or not self._capabilities.snapshot:
            raise self._not_saved(call)
