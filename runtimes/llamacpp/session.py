"""One sequence on llama.cpp: its own context on shared weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from edgedec.decoding import snapshot
from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import OnChunk, Pass, Rollback, Want
from edgedec.decoding.session_base import SnapshotSession, closed
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import PassFailed, SnapshotError, StateError
from edgedec.runtimes.llamacpp.context import CHUNK, Context, State
from edgedec.runtimes.llamacpp.loaded import LoadedWeights
from edgedec.runtimes.llamacpp.trail import Trail

Members = list[list[int]]


@dataclass(slots=True)
class Mark:
    """State of the sequences before a pass.

    Attributes:
        used: number of sequences in use.
        pending: number of pending nodes.
        ends: leaves and their sequences.
        grown: sequences that were extended since, and the position at which each was extended.

    """

    used: int
    pending: int
    ends: dict[int, int]
    grown: dict[int, int] = field(default_factory=dict)


class Branches:
    """The sequences of one session.

    Args:
        most: largest number of sequences.

    """

    def __init__(self, most: int) -> None:
        self._held = [0] * most  # committed tokens that each sequence shares with the text
        self._used = 1
        self._ends: dict[int, int] = {}  # from a leaf to the sequence that ends with it
        self._via: list[int] = []  # a sequence through each pending node
        self.mark()

    @property
    def pending(self) -> bool:
        """True if pending nodes were placed, rather than computed as a chain."""
        return bool(self._via)

    # -- growing --------------------------------------------------------------------------------

    def place(
        self, context: Context, tree: TokenTree, start: int, end: int, length: int
    ) -> Members:
        """Return the sequences of ``nodes[start:end]``; new sequences already hold their path."""
        parents, depths = tree.parents, tree.depths
        if len(self._via) < start:  # the pending nodes are a chain in sequence 0
            self._via = [0] * start
            self._ends = {start - 1: 0}
        if start == 0:
            self._ends = {-1: 0}
        inner = set(parents[start:end])
        members: Members = [[] for _ in range(start, end)]
        for last in range(start, end):
            if last in inner:
                continue
            entry = last
            while parents[entry] >= start:
                entry = parents[entry]
            parent = parents[entry]
            sequence = self._ends.pop(parent, -1)
            if sequence < 0:
                sequence = self._fork(context, parent, length, depths[parent] + 1)
            else:
                position = length + depths[parent] + 1 if start else length
                self._mark.grown.setdefault(sequence, position)
            self._ends[last] = sequence
            node = last
            while node >= start:
                members[node - start].append(sequence)
                node = parents[node]
        self._via += [sequences[0] for sequences in members]
        return members

    def _fork(self, context: Context, parent: int, length: int, depth: int) -> int:
        """Return a new sequence with the committed tokens and the path to a pending node."""
        sequence = self._used
        if sequence == len(self._held):
            raise StateError(f"a tree of more than {sequence} branches: draft fewer nodes")
        self._used += 1
        self._catch_up(context, sequence, length)
        if parent >= 0:
            context.share(self._via[parent], sequence, length, length + depth)
        return sequence

    def _catch_up(self, context: Context, sequence: int, length: int) -> None:
        if self._held[sequence] < length:
            context.share(0, sequence, self._held[sequence], length)
            self._held[sequence] = length

    def mark(self) -> None:
        """Remember the sequences' state, for ``go_back``."""
        self._mark = Mark(self._used, len(self._via), dict(self._ends))

    def go_back(self, context: Context, length: int) -> None:
        """Undo a failed pass: remove what was written since ``mark``."""
        mark = self._mark
        for sequence in range(mark.used, self._used):
            context.remove(sequence, length)
        for sequence, position in mark.grown.items():
            if sequence < mark.used:
                context.remove(sequence, position)
        self._used, self._ends = mark.used, mark.ends
        del self._via[mark.pending :]

    # -- ending ---------------------------------------------------------------------------------

    def keep(self, context: Context, path: Sequence[int], length: int) -> None:
        """Keep the committed tokens and this path in sequence 0; drop the tree's other nodes."""
        winner = self._via[path[-1]] if path else 0
        end = length + len(path)
        for sequence in range(self._used):
            if sequence != winner:
                context.remove(sequence, length)
        context.remove(winner, end)
        if winner:
            context.share(winner, 0, length, end)
            self._held[winner] = end
        self.forget()

    def forget(self) -> None:
        """Forget the pending tree."""
        self._used = 1
        self._ends.clear()
        self._via.clear()

    def cut(self, length: int) -> None:
        """Truncate all sequences to ``length``."""
        self._held = [min(held, length) for held in self._held]
        self.forget()

    def hold(self, context: Context, length: int) -> None:
        """Add all cells of sequence 0 to another sequence, after a state was restored.

        llama.cpp never reuses cells of two sequences for new tokens, even when they have left a
        sliding window; after restoring a state it would otherwise start with the oldest ones.
        """
        self._catch_up(context, 1, length)


# llama.cpp allocates a cache at once and writes to all of it, so caches start small and grow.
_FIRST_CELLS = 1024
# Bytes of a state besides keys and values: the position and the sequences of each token, and a
# header.
_STATE_BYTES_PER_TOKEN, _STATE_BYTES = 2048, 1 << 16


class LlamaSession(SnapshotSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``LlamaModel.open``.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.

    """

    runtime = "llamacpp"
    prefill_chunk = CHUNK

    def __init__(self, model: LoadedWeights, capacity: int) -> None:
        self._model = model
        capabilities = model.capabilities
        self._top_k = capabilities.top_k
        self._trail = None if capabilities.rollback is Rollback.ANY else Trail()
        self._first_cells = max(min(capacity, _FIRST_CELLS), model.least_cells(capacity))
        context = model.new_context(self._first_cells)
        self._context: Context | None = context
        self._branches = Branches(context.rows)
        super().__init__(capacity, model.info.vocab_size, capabilities, context.stop)

    # -- memory ---------------------------------------------------------------------------------

    @property
    def allocated(self) -> int:
        """Tokens that the cache holds without growing."""
        return self._open_context().cells

    def reserve(self, tokens: int) -> None:
        """See ``Reserving``. An empty cache is replaced, any other is copied."""
        cells = min(tokens, self.capacity)
        if cells <= self.allocated:
            return
        if self._length:
            self._grow(cells)
        else:
            self._replace(cells)

    def trim(self) -> None:
        """See ``Trimmable``. A cache cannot shrink, so only an empty one is released."""
        if self._length == 0 and self.allocated > self._first_cells:
            self._replace(self._first_cells)

    def _replace(self, cells: int) -> None:
        """Replace the cache by an empty one, freeing the old one first to save memory."""
        stop = self._open_context().stop
        self._context = None
        self._forget()
        try:
            self._context = self._model.new_context(cells, stop)
        except PassFailed:
            self._context = self._model.new_context(self._first_cells, stop)
            raise

    # -- prefill --------------------------------------------------------------------------------

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        self._room_for(len(tokens))
        for chunk in self._chunks(tokens, on_chunk):
            self._decode(self._open_context(), chunk, self._length, head=False)
            if self._trail is not None:
                self._trail.prefilled(self._open_context(), len(chunk))

    def _prefilled(self, count: int) -> FloatArray:
        return self._open_context().states(count)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        context = self._room_for(len(tree))
        shown: list[FloatArray] | None = [] if want & Want.STATES else None
        logits = self._run(context, tree, start, shown)
        hide = self._model.first_padding
        if hide < self._vocab_size:
            logits[:, hide:] = -np.inf
        scored = Scored(start, logits, self._top_k, want)
        scored.states = np.concatenate(shown) if shown else None
        return scored

    def _run(
        self, context: Context, tree: TokenTree, start: int, shown: list[FloatArray] | None
    ) -> FloatArray:
        """Return the logits of ``nodes[start:]``; a pass that fails leaves none of them cached.

        Their states, part by part, are added to ``shown``.
        """
        count, most = len(tree), context.rows
        if count - start <= most and tree.is_chain:
            tokens = tree.tokens[start:] if start else tree.tokens
            self._decode(context, tokens, self._length + start, head=True)
            if shown is not None:
                shown.append(context.states(count - start))
            return context.logits(count - start)
        parts: list[FloatArray] = []
        self._branches.mark()
        try:
            # A tree with more rows than one decode returns is computed in parts.
            for part in range(start, count, most):
                end = min(part + most, count)
                if tree.is_chain:
                    self._decode(context, tree.tokens[part:end], self._length + part, head=True)
                else:
                    self._branch(context, tree, part, end)
                parts.append(context.logits(end - part))
                if shown is not None:
                    shown.append(context.states(end - part))
                if end < count:
                    parts[-1] = parts[-1].copy()
        except BaseException:
            if tree.is_chain:
                self._go_back(context, self._length + start, failed=True)
            self._branches.go_back(context, self._length)
            raise
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _decode(
        self, context: Context, tokens: Sequence[int], position: int, *, head: bool
    ) -> None:
        """Compute a chain, in sequence 0."""
        try:
            context.run(tokens, position, head=head)
        except BaseException:
            self._go_back(context, position, failed=True)
            raise
        if self._trail is not None:
            self._trail.computed(context, tokens)

    def _branch(self, context: Context, tree: TokenTree, start: int, end: int) -> None:
        """Compute nodes of a branching tree, which attend to their own ancestors only."""
        members = self._branches.place(context, tree, start, end, self._length)
        positions = [self._length + depth for depth in tree.depths[start:end]]
        context.decode(context.batch.branches(tree.tokens[start:end], positions, members))

    # -- committing and going back --------------------------------------------------------------

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        context = self._open_context()
        length = self._length + len(path)
        if self._branches.pending:  # a tree that branches now may have been a chain when computed
            self._branches.keep(context, path, self._length)
        elif len(path) < self._pending:
            self._go_back(context, length)
        if self._trail is not None:
            self._trail.committed(context)

    def _cut(self, length: int) -> None:
        context = self._open_context()
        if length == 0:
            context.clear()
            self._forget()
        elif self._trail is not None:
            self._trail.check(length)
            self._go_back(context, length)
        elif length < self._length + self._pending:
            context.remove(-1, length)
        self._branches.cut(length)

    def _copy(self, length: int) -> LlamaSession:
        context, trail = self._open_context(), self._trail
        if trail is not None:
            trail.check(length)
        other = type(self)(self._model, self.capacity)
        if length:
            other._put(context.state(), length if trail is None else trail.end)
        if length and trail is not None:
            assert other._trail is not None
            other._trail.follow(trail)
            other._go_back(other._open_context(), length)
        return other

    def _go_back(self, context: Context, length: int, *, failed: bool = False) -> None:
        """Remove what follows from sequence 0; of a failed pass, whatever it wrote.

        A recurrent model computes some tokens again: if that fails, the session is empty.
        """
        trail = self._trail
        if trail is None:
            context.remove(0, length)
            return
        try:
            (trail.repeat if failed else trail.go_back)(context, length)
        except BaseException:
            context.clear()
            self._emptied()
            raise

    # -- saving ---------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        return self._model.fingerprint

    def _state(self) -> snapshot.Payload:
        context, pending = self._open_context(), self._pending
        if not self._length:
            return []
        if self._trail is None or not pending or self._tree is None:
            return [context.state().data]
        self._go_back(context, self._length)
        state = context.state()
        self._decode(context, self._tree.tokens[:pending], self._length, head=False)
        return [state.data]

    def _most_bytes(self) -> int:
        bytes_per_token = self._model.info.kv_bytes_per_token + _STATE_BYTES_PER_TOKEN
        return bytes_per_token * (self.capacity + CHUNK) + self._model.state_bytes + _STATE_BYTES

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        self._put(np.frombuffer(payload, np.uint8), length)
        return length

    def _put(self, state: State, length: int) -> None:
        """Replace the cache by a state of ``length`` tokens.

        The bytes were hashed, so llama.cpp wrote them. If it refuses them anyway, the session is
        empty afterwards.
        """
        context = self._open_context()
        each = self._model.info.kv_bytes_per_token
        # Pending nodes included.
        cells = max(length, (state.size - self._model.state_bytes) // each + 1 if each else 0)
        if cells > context.cells:
            del context  # freed before another is allocated
            self._replace(cells)
            context = self._open_context()
        self._forget()
        if not length:
            context.clear()
        elif not context.restore(state, length):
            self._emptied()
            raise SnapshotError("llama.cpp refuses the saved state: the session is empty now")
        if self._trail is None:
            self._branches.hold(context, length)
        else:
            self._trail.begin(context, length)

    # -- ending ---------------------------------------------------------------------------------

    def _release(self) -> None:
        """Drop the cache; it is freed once no pass or view of logits refers to it."""
        self._stop.set()
        self._context = None  # a pass of another thread holds a reference until it has stopped

    # -- helpers --------------------------------------------------------------------------------

    def _open_context(self) -> Context:
        if self._context is None:
            raise closed()
        return self._context

    def _room_for(self, count: int) -> Context:
        """Return the context, or one of twice the cells with the same contents."""
        context, needed = self._open_context(), self._length + count
        if needed <= context.cells:
            return context
        return self._grow(min(self.capacity, max(needed + CHUNK, 2 * context.cells)))

    def _grow(self, cells: int) -> Context:
        """Return a context of more cells with the same contents."""
        larger = self._open_context().larger(cells)
        if self._trail is None:
            self._branches.hold(larger, self._length)
        else:
            self._trail.moved()
        self._open_context()  # raises if closed meanwhile
        self._context = larger
        return larger

    def _emptied(self) -> None:
        self._length = 0
        self._tree, self._pending = None, 0
        self._forget()

    def _forget(self) -> None:
        """Follow a cache that is empty now."""
        self._branches.cut(0)
        if self._trail is not None:
            self._trail.clear()
