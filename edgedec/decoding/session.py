"""Protocols of a runtime: a Model that owns weights and a Session that owns one KV cache.

Prefill takes ``prompt[:-1]``; the last prompt token is the first root. From then on a session's
``length`` is always one less than the number of known tokens: the root's keys and values enter the
cache in the pass that scores it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import BinaryIO, Protocol, runtime_checkable

from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import StateError

OnChunk = Callable[[int, int], None]


class Want(enum.Flag):
    """Outputs a pass must return. ``TOP`` alone never moves a whole row of logits.

    ``STATES``: the residual streams that the model shows, see ``Capabilities.taps``.
    """

    TOP = enum.auto()
    LOGITS = enum.auto()
    STATES = enum.auto()


class Rollback(enum.Enum):
    """How far a session can roll back.

    Whatever it is, pending nodes can be dropped. ``RECENT``: to lengths not long ago, else
    ``CannotRollback`` names the nearest one before, and rejected nodes cost nothing
    (``Capabilities.rejected``). ``REPLAY``: as ``RECENT``, but to reject some nodes the others are
    computed again, which takes another pass. Layers with a state of fixed size in place of keys and
    values are the reason for both: ``edgedec.decoding.trail``.
    """

    ANY = "any"
    RECENT = "recent"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a loaded model.

    Attributes:
        name: for reports.
        vocab_size: columns of a logits row. Columns that are not tokens hold ``-inf``.
        eos_ids: tokens that end a text.
        max_context: context length the model was trained for, in tokens.
        kv_bytes_per_token: cache bytes per token: all layers, keys and values.
        weight_bytes: bytes of the weights that a pass reads, as stored.
        threads: threads of a pass.
        scratch_bytes_per_token: working memory of a prefill chunk beyond the cache, in bytes per
            cached token; 0 if it does not grow with the cache.
        state_bytes: bytes of a session's state that does not grow with its text, for layers that
            have no keys and values.
        lookup_bytes: memory of the rows that a token reads of tables that are mapped and not among
            ``weight_bytes``.

    """

    name: str
    vocab_size: int
    eos_ids: tuple[int, ...]
    max_context: int
    kv_bytes_per_token: int
    weight_bytes: int
    threads: int = 1
    scratch_bytes_per_token: int = 0
    state_bytes: int = 0
    lookup_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of a runtime, which the engine reads before it plans.

    Attributes:
        branches: most leaves a pending tree may have. 1: chains only; None: any number.
        rollback: how far back ``rollback`` can go.
        rejected: most nodes of a pass that can be rejected without another pass; None is any
            number.
        row_widths: None if a pass may have any number of rows, else the static widths of compiled
            graphs, ascending; a pass is padded to the next one, and more rows than the widest has
            are computed in several passes.
        top_k: most likely ids and logits that a pass returns per row.
        batch_invariant: a row's result does not depend on how many rows its pass had.
        snapshot: whether sessions can be saved and loaded.
        taps: layers before which the model shows its residual stream, ascending; its number of
            layers stands for the stream after the last one, before the final norm.
        phases: weights are streamed while a pass runs, and its sessions are
            ``StreamedSession``: they report when they load and when they compute.
        verifies: several rows take one pass; else each has its own, and a model can only draft.
        lends: its sessions are ``Lending``.

    """

    branches: int | None = None
    rollback: Rollback = Rollback.ANY
    rejected: int | None = None
    row_widths: tuple[int, ...] | None = None
    top_k: int = 8
    batch_invariant: bool = False
    snapshot: bool = False
    taps: tuple[int, ...] = ()
    phases: bool = False
    verifies: bool = True
    lends: bool = False

    @property
    def tree(self) -> bool:
        """True if branching trees are verified."""
        return self.branches != 1

    @property
    def drafted_branches(self) -> int | None:
        """Most branches a drafted tree may have; batch invariance holds for chains only."""
        return 1 if self.batch_invariant else self.branches

    def check_branches(self, tree: TokenTree) -> None:
        """Raise StateError for a tree with more branches than a session verifies."""
        if self.branches is None or tree.leaves <= self.branches:
            return
        if self.branches == 1:
            raise StateError(
                f"forward(): expected a chain, got a tree of {tree.leaves} branches:"
                " this session verifies chains only"
            )
        raise StateError(
            f"forward(): expected at most {self.branches} branches, got a tree of {tree.leaves}:"
            " draft fewer"
        )


@dataclass(slots=True)
class Pass:
    """The result of a forward pass over ``nodes[start:]``; row i is node ``start + i``.

    Arrays are views of the session's buffers: valid until its next forward.

    Attributes:
        start: the first node this pass computed.
        top_ids: the ``top_k`` most likely ids per row, best first, ``[rows, k]`` int64.
            Equal logits are ordered by id, so column 0 is the argmax.
        top_logits: their logits, ``[rows, k]`` float32.
        logits: ``[rows, vocab]`` float32, or None when only ``TOP`` was wanted.
        states: residual streams, ``[rows, taps * hidden]`` float32, if ``STATES`` were wanted.

    """

    start: int
    top_ids: IntArray
    top_logits: FloatArray
    logits: FloatArray | None
    states: FloatArray | None = None

    def first(self) -> tuple[list[int], list[float]]:
        """Return the most likely id of each row, and its logit.

        The logit is NaN if the row contains a NaN. A runtime may have these before the others.
        """
        # In Python, since a numpy call takes a microsecond; one NaN makes the sum NaN.
        best = [total if isnan(total := sum(row)) else row[0] for row in self.top_logits.tolist()]
        return self.top_ids[:, 0].tolist(), best

    def leading(self, row: int) -> tuple[list[int], list[float]]:
        """Return the most likely ids of a row, best first, and their logits: at least one of each.

        A logit is NaN if the row contains a NaN. As many as are known without further work.
        """
        return self.top_ids[row].tolist(), self.top_logits[row].tolist()

    def below(self, depth: int) -> Pass:
        """Return the pass as seen from node ``depth`` of a chain, which becomes node 0."""
        if not depth:
            return self
        cut = max(0, depth - self.start)
        logits = None if self.logits is None else self.logits[cut:]
        states = None if self.states is None else self.states[cut:]
        start = max(0, self.start - depth)
        return Pass(start, self.top_ids[cut:], self.top_logits[cut:], logits, states)


@runtime_checkable
class Session(Protocol):
    """One sequence's cache. Every method that raises leaves the session usable."""

    @property
    def length(self) -> int:
        """Number of tokens whose keys and values are committed."""
        ...

    @property
    def capacity(self) -> int:
        """Number of tokens, committed and pending together, that fit."""
        ...

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Append and commit ``tokens``, in chunks.

        ``on_chunk(done, total)`` runs after each chunk. When it raises, or ``interrupt``
        was called, the chunks done so far stay committed and ``length`` says how many.

        Raises:
            StateError: a tree is pending.
            CapacityExceeded: before anything is computed.

        """
        ...

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Compute ``nodes[start:]`` of ``tree``; the nodes before are pending already.

        A tree may grow between passes: call again with the same tree and ``start`` equal
        to the number of pending nodes. Each node sees the committed tokens and its own
        ancestors only.

        Raises:
            StateError: ``start`` is not the number of pending nodes, or there is nothing
                to compute, or the tree has more branches than ``Capabilities.branches``.
            CapacityExceeded: before anything is computed.
            Interrupted: nodes pending before this call stay pending.

        """
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep these pending nodes, root first, parent to child; drop the others.

        ``length`` moves now; rows may be moved in memory at the next pass. An empty path
        drops the whole pending tree.

        Raises:
            StateError: no tree is pending, or the path is not one of the pending tree.

        """
        ...

    def rollback(self, length: int) -> None:
        """Go back to an absolute length, and drop any pending tree.

        Raises:
            StateError: ``length`` is negative or beyond what is committed.
            CannotRollback: names the nearest length that is possible.

        """
        ...

    def fork(self, length: int) -> Session:
        """Return a new session that holds the first ``length`` committed tokens of this one."""
        ...

    def save(self, file: BinaryIO) -> None:
        """Write the state of the committed tokens; a pending tree is not part of it.

        Raises:
            StateError: the model's sessions cannot be saved (``Capabilities.snapshot``).

        """
        ...

    def load(self, file: BinaryIO) -> None:
        """Replace the contents by a saved state of the same model.

        Raises:
            SnapshotError: the state is damaged or of another model; nothing changes.
            CapacityExceeded: the state is longer than this session; nothing changes.
            StateError: the model's sessions cannot be saved.

        """
        ...

    def interrupt(self) -> None:
        """Make the running pass, or the next one, raise Interrupted; called from another thread."""
        ...

    def close(self) -> None:
        """Release the cache. Closing twice is harmless; any other call raises StateError."""
        ...


@runtime_checkable
class Model(Protocol):
    """Weights, threads and a device. Its sessions share the weights."""

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Features of its sessions."""
        ...

    def open(self, capacity: int) -> Session:
        """Return a new, empty session for at most ``capacity`` tokens.

        Raises:
            CapacityExceeded: ``capacity`` is beyond the model's context, or below 1.

        """
        ...

    def close(self) -> None:
        """Release the weights; called after its sessions are closed."""
        ...


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
class Lending(Protocol):
    """A session that lets a head read its keys and values."""

    @property
    def length(self) -> int: ...

    def lend(self, layer: int) -> tuple[FloatArray, FloatArray]:
        """Return a layer's keys and values, ``[kv_heads, slots, width]``, without copying them.

        For a layer without any, there are no heads. The first ``length`` slots are committed. The
        arrays are valid until the next call.
        """
        ...


@runtime_checkable
class BorrowingSession(HeadSession, Protocol):
    """A session of a head that has no cache of its own: it reads its target's (Gemma 4)."""

    def borrow(self, target: Lending) -> None:
        """Read the cache of this session of the target from now on.

        All rows of a pass are at the position after its committed tokens.
        """
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
class Borrowing(HeadModel, Protocol):
    """A head whose sessions are ``BorrowingSession``.

    Attributes:
        borrows: layers of the target whose keys and values it reads, ascending.

    """

    borrows: tuple[int, ...]


@runtime_checkable
class StreamedSession(Session, Protocol):
    """A session whose weights are larger than memory and pass through it (2309.04255)."""

    def watch(self, on_phase: OnPhase | None) -> None:
        """Report the phases of passes from now on; None ends it.

        ``on_phase`` runs in the thread that computes, at each change, and must be quick: a thread
        on the same cores may compute while weights load, but not while they are used.
        """
        ...
