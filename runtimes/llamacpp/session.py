"""One sequence on llama.cpp: its own context on shared weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgedec.decoding import snapshot
from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import OnChunk, Pass, Rollback, Want
from edgedec.decoding.session_base import SessionBase, closed
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CannotRollback, SnapshotError, StateError
from edgedec.runtimes.llamacpp.branches import Branches
from edgedec.runtimes.llamacpp.context import CHUNK, Context
from edgedec.runtimes.llamacpp.state import State, cells_of, most_bytes

if TYPE_CHECKING:
    from edgedec.runtimes.llamacpp.model import LlamaModel

# llama.cpp allocates a cache at once and writes to all of it, so it begins small.
_FIRST_CELLS = 1024


class LlamaSession(SessionBase):
    """Implements ``edgedec.decoding.session.Session``; made by ``LlamaModel.open``.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.

    """

    runtime = "llamacpp"
    prefill_chunk = CHUNK

    def __init__(self, model: LlamaModel, capacity: int) -> None:
        self._model = model
        capabilities = model.capabilities
        self._top_k = capabilities.top_k
        self._keeps_all = capabilities.rollback is Rollback.NONE
        first = max(min(capacity, _FIRST_CELLS), model.least_cells(capacity))
        context = model.new_context(first)
        self._context: Context | None = context
        self._branches = Branches(context.rows)
        super().__init__(capacity, model.info.vocab_size, capabilities, context.stop)

    # -- reading --------------------------------------------------------------------------------

    def _read_all(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        self._room_for(len(tokens))
        super()._read_all(tokens, on_chunk)

    def _read(self, tokens: Sequence[int]) -> None:
        context = self._open_context()
        try:
            context.run(tokens, self._length, head=False)
        except BaseException:
            self._take_back(context, self._length)
            raise

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        context = self._room_for(len(tree))
        logits = self._run(context, tree, start)
        hide = self._model.first_padding
        if hide < self._vocab_size:
            logits[:, hide:] = -np.inf
        return Scored(start, logits, self._top_k, want)

    def _run(self, context: Context, tree: TokenTree, start: int) -> FloatArray:
        """Return the logits of ``nodes[start:]``; if a pass fails, none of them remain."""
        count, most = len(tree), context.rows
        if count - start <= most and tree.is_chain:
            tokens = tree.tokens[start:] if start else tree.tokens
            self._decode(context, tokens, self._length + start)
            return context.logits(count - start)
        parts: list[FloatArray] = []
        self._branches.mark()
        try:
            # More rows than one decode returns: the tree grows in parts.
            for part in range(start, count, most):
                end = min(part + most, count)
                if tree.is_chain:
                    self._decode(context, tree.tokens[part:end], self._length + part)
                else:
                    self._branch(context, tree, part, end)
                parts.append(context.logits(end - part))
                if end < count:
                    parts[-1] = parts[-1].copy()
        except BaseException:
            if tree.is_chain:
                self._take_back(context, self._length + start)
            self._branches.go_back(context, self._length)
            raise
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _decode(self, context: Context, tokens: Sequence[int], position: int) -> None:
        """Compute a chain, in the text's own sequence."""
        try:
            context.run(tokens, position, head=True)
        except BaseException:
            self._take_back(context, position)
            raise

    def _branch(self, context: Context, tree: TokenTree, start: int, end: int) -> None:
        """Compute nodes of a branching tree, whose rows see their own ancestors only."""
        members = self._branches.place(context, tree, start, end, self._length)
        positions = [self._length + depth for depth in tree.depths[start:end]]
        context.decode(context.batch.branches(tree.tokens[start:end], positions, members))

    # -- committing and going back --------------------------------------------------------------

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        context = self._open_context()
        length = self._length + len(path)
        if self._branches.pending:  # a tree that branches now may have been a chain when computed
            self._branches.keep(context, path, self._length)
        elif len(path) < self._pending and not context.remove(0, length):
            raise self._cannot(length, self._length + self._pending)

    def _cut(self, length: int) -> None:
        context = self._open_context()
        if length == 0:
            context.clear()
        elif length < self._length + self._pending:
            if self._keeps_all:
                raise self._cannot(length, 0)
            context.remove(-1, length)
        self._branches.cut(length)

    def _copy(self, length: int) -> LlamaSession:
        context = self._open_context()
        if self._keeps_all and 0 < length < self._length + self._pending:
            raise self._cannot(length, 0)
        other = type(self)(self._model, self.capacity)
        if length:
            other._put(context.state(), length)
        return other

    # -- saving ---------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        return self._model.fingerprint

    def _state(self) -> snapshot.Payload:
        if self._keeps_all and self._pending:
            raise StateError(
                f"save(): expected no pending tree, as the model is recurrent,"
                f" got one of {self._pending} nodes: call commit() first"
            )
        return [self._open_context().state().data] if self._length else []

    def _most_bytes(self) -> int:
        return most_bytes(self._model, self.capacity)

    def _restore(self, payload: bytearray, length: int) -> None:
        self._put(np.frombuffer(payload, np.uint8), length)

    def _put(self, state: State, length: int) -> None:
        """Replace the cache by a state of ``length`` tokens.

        The bytes are as saved, so they are llama.cpp's own; if it refuses them anyway, the session
        is empty afterwards.
        """
        context = self._open_context()
        cells = cells_of(state, self._model, length)
        if cells > context.cells:
            context = self._context = context.empty(cells)
        self._branches.cut(0)
        if not length:
            context.clear()
        elif not context.restore(state, length):
            self._emptied()
            raise SnapshotError("llama.cpp refuses the saved state: the session is empty now")
        if not self._keeps_all:
            self._branches.hold(context, length)

    # -- ending ---------------------------------------------------------------------------------

    def _release(self) -> None:
        """Drop the cache; it is freed once no pass or view of logits needs it any more."""
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
        larger = context.larger(min(self.capacity, max(needed + CHUNK, 2 * context.cells)))
        if not self._keeps_all:
            self._branches.hold(larger, self._length)
        self._open_context()  # raises if closed meanwhile
        self._context = larger
        return larger

    def _take_back(self, context: Context, length: int) -> None:
        """Undo a failed pass: remove what it wrote to sequence 0."""
        if not context.remove(0, length):
            # A recurrent state has moved on and can only be emptied.
            context.clear()
            self._emptied()

    def _emptied(self) -> None:
        self._length = 0
        self._tree, self._pending = None, 0
        self._branches.forget()

    def _cannot(self, length: int, nearest: int) -> CannotRollback:
        return CannotRollback(
            f"a recurrent model cannot go back to {length} tokens: {nearest} is possible", nearest
        )
