"""One sequence on llama.cpp: a context of its own, on weights that are shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import OnChunk, Pass, Rollback, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import (
    CannotRollback,
    CapacityExceeded,
    Interrupted,
    SnapshotError,
    StateError,
)
from edgedec.runtimes.llamacpp.branches import Branches
from edgedec.runtimes.llamacpp.context import CHUNK, Context
from edgedec.runtimes.llamacpp.state import State, cells_of, read_state, write_state

if TYPE_CHECKING:
    from edgedec.runtimes.llamacpp.model import LlamaModel

# llama.cpp takes a cache from memory at once and writes to all of it: begin with a small one.
_FIRST_CELLS = 1024


class LlamaSession:
    """Implements ``edgedec.decoding.session.Session``; made by ``LlamaModel.open``.

    Args:
        model: whose weights it shares.
        capacity: tokens that fit.

    """

    def __init__(self, model: LlamaModel, capacity: int) -> None:
        self.capacity = capacity
        self._model = model
        info = model.info
        self._vocab_size = info.vocab_size
        self._top_k = model.capabilities.top_k
        self._keeps_all = model.capabilities.rollback is Rollback.NONE
        first = max(min(capacity, _FIRST_CELLS), model.least_cells(capacity))
        self._context: Context | None = model.new_context(first)
        self._stop = self._context.stop
        self._branches = Branches(self._context.rows)
        self._length = 0
        self._tree: TokenTree | None = None
        self._pending = 0

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self._length

    # -- reading --------------------------------------------------------------------------------

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Commit tokens, in chunks."""
        context = self._open_context()
        if self._pending:
            raise StateError("prefill() while a tree is pending: call commit() first")
        self._check_room(len(tokens))
        self._check_tokens(tokens)
        context = self._room_for(context, len(tokens))
        for start in range(0, len(tokens), CHUNK):
            self._check_interrupt()
            chunk = tokens[start : start + CHUNK]
            try:
                context.run(chunk, self._length, head=False)
            except BaseException:
                self._take_back(context, self._length)
                raise
            self._length += len(chunk)
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Rows for ``nodes[start:]``."""
        context = self._open_context()
        count = len(tree)
        if start != self._pending:
            raise StateError(f"forward() from node {start}: {self._pending} nodes are pending")
        if start >= count:
            raise StateError(f"forward() from node {start}: the tree has {count} nodes")
        self._model.capabilities.check_branches(tree)
        self._check_room(count)
        self._check_tokens(tree.tokens[start:] if start else tree.tokens)
        self._check_interrupt()
        context = self._room_for(context, count)
        logits = self._run(context, tree, start)
        self._tree, self._pending = tree, count
        hide = self._model.first_padding
        if hide < self._vocab_size:
            logits[:, hide:] = -np.inf
        return Scored(start, logits, self._top_k, want)

    def _run(self, context: Context, tree: TokenTree, start: int) -> FloatArray:
        """The logits of ``nodes[start:]``; when it fails, nothing of them is left."""
        count, most = len(tree), context.rows
        if count - start <= most and tree.is_chain:
            tokens = tree.tokens[start:] if start else tree.tokens
            self._decode(context, tokens, self._length + start)
            return context.logits(count - start)
        parts: list[FloatArray] = []
        self._branches.mark()
        try:
            # More rows than one decode brings: the tree grows a part at a time.
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
        """A chain, in the text's own sequence."""
        try:
            context.run(tokens, position, head=True)
        except BaseException:
            self._take_back(context, position)
            raise

    def _branch(self, context: Context, tree: TokenTree, start: int, end: int) -> None:
        """Nodes of a branching tree, whose rows see their own ancestors only."""
        members = self._branches.place(context, tree, start, end, self._length)
        positions = [self._length + depth for depth in tree.depths[start:end]]
        context.decode(context.batch.branches(tree.tokens[start:end], positions, members))

    # -- committing and going back --------------------------------------------------------------

    def commit(self, path: Sequence[int]) -> None:
        """Keep a path of the pending tree."""
        context = self._open_context()
        tree = self._tree
        if tree is None:
            raise StateError("commit() without a pending tree: call forward() first")
        if not tree.is_path(path) or (path and path[-1] >= self._pending):
            raise StateError(f"commit({list(path)}): not a path of the pending tree")
        length = self._length + len(path)
        if self._branches.pending:  # not every tree that branches by now did when computed
            self._branches.keep(context, path, self._length)
        elif len(path) < self._pending and not context.remove(0, length):
            raise self._cannot(length, self._length + self._pending)
        self._length = length
        self._drop()

    def rollback(self, length: int) -> None:
        """Go back to an absolute length."""
        context = self._open_context()
        if not 0 <= length <= self._length:
            raise StateError(f"rollback({length}): expected 0..{self._length}")
        if length == 0:
            context.clear()
        elif length < self._length + self._pending:
            if self._keeps_all:
                raise self._cannot(length, 0)
            context.remove(-1, length)
        self._length = length
        self._branches.cut(length)
        self._drop()

    def fork(self, length: int) -> LlamaSession:
        """A new session with a copy of the first ``length`` tokens."""
        context = self._open_context()
        if not 0 <= length <= self._length:
            raise StateError(f"fork({length}): expected 0..{self._length}")
        if self._keeps_all and 0 < length < self._length + self._pending:
            raise self._cannot(length, 0)
        other = type(self)(self._model, self.capacity)
        if length:
            other._restore(context.state(), length)
        return other

    # -- saving ---------------------------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write the committed tokens' state."""
        context = self._open_context()
        if self._keeps_all and self._pending:
            raise StateError("save() while a recurrent model's tokens are pending: commit() first")
        state = context.state() if self._length else None
        write_state(file, self._model, state, self._length)

    def load(self, file: BinaryIO) -> None:
        """Take over a saved state.

        Bytes that are as they were saved are llama.cpp's own; if it refuses them all the same,
        the session is empty afterwards.
        """
        self._open_context()
        self._restore(*read_state(file, self._model, self.capacity))

    def _restore(self, state: State, length: int) -> None:
        context = self._open_context()
        cells = cells_of(state, self._model, length)
        if cells > context.cells:
            context = self._context = context.empty(cells)
        good = True
        if length:
            good = context.restore(state, length)
        else:
            context.clear()
        self._length = length if good else 0
        self._drop()
        self._branches.cut(0)
        if not good:
            raise SnapshotError("llama.cpp refuses the saved state: the session is empty now")
        if not self._keeps_all:
            self._branches.hold(context, length)

    # -- ending ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """From another thread: stop the running pass, or the next."""
        self._stop.set()

    def close(self) -> None:
        """Give the cache back, once no pass of another thread and no view of logits needs it."""
        if self._context is not None:
            self._stop.set()
            self._drop()
            self._context = None  # a pass of another thread holds on to it until it has stopped

    # -- helpers --------------------------------------------------------------------------------

    def _open_context(self) -> Context:
        if self._context is None:
            raise StateError("the session is closed: open a new one")
        return self._context

    def _room_for(self, context: Context, count: int) -> Context:
        """The context, or one of twice the cells that holds the same."""
        needed = self._length + count
        if needed <= context.cells:
            return context
        larger = context.larger(min(self.capacity, max(needed + CHUNK, 2 * context.cells)))
        if not self._keeps_all:
            self._branches.hold(larger, self._length)
        self._open_context()  # closed meanwhile?
        self._context = larger
        return larger

    def _take_back(self, context: Context, length: int) -> None:
        """After a pass that failed: what it wrote to sequence 0 goes."""
        if not context.remove(0, length):
            # A recurrent state has moved on: only the beginning is left.
            context.clear()
            self._length = 0
            self._drop()

    def _cannot(self, length: int, nearest: int) -> CannotRollback:
        return CannotRollback(
            f"a recurrent model cannot go back to {length} tokens: {nearest} is possible", nearest
        )

    def _drop(self) -> None:
        self._tree, self._pending = None, 0
        self._branches.forget()

    def _check_interrupt(self) -> None:
        if self._stop:
            self._stop.clear()
            raise Interrupted("interrupted")

    def _check_room(self, count: int) -> None:
        if self._length + count > self.capacity:
            raise CapacityExceeded(
                f"{self._length} + {count} tokens: the session holds {self.capacity}"
            )

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocab_size):
            raise StateError(f"a token outside the vocabulary: expected 0..{self._vocab_size - 1}")
