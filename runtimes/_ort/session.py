"""The state machine of a sequence on ONNX Runtime, whatever its graph looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, ClassVar, Protocol

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CapacityExceeded, StateError
from edgedec.runtimes._ort.runner import Runner
from edgedec.runtimes._ort.saved import Rows, rows_from, rows_of, token_bytes


class Saveable(Protocol):
    """What a session must know of its model."""

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What its sessions can do."""
        ...

    @property
    def fingerprint(self) -> str:
        """What a saved state must be of."""
        ...


class OrtSession:
    """What is committed and what is pending, and the refusal of calls out of order.

    A session of a graph style adds ``forward`` and ``fork``, and the methods below that raise
    ``NotImplementedError``.

    Args:
        model: whose weights it shares.
        capacity: tokens that fit.
        runner: of its passes.

    """

    runtime: ClassVar[str]
    prefill_chunk = 128

    def __init__(self, model: Saveable, capacity: int, runner: Runner) -> None:
        self.capacity = capacity
        self._saveable = model
        self._vocab_size = model.info.vocab_size
        self._runner = runner
        self._length = 0
        self._tree: TokenTree | None = None
        self._pending = 0
        self._closed = False

    # -- what a graph style adds ----------------------------------------------------------------

    def _read(self, tokens: Sequence[int]) -> None:
        """Compute a chunk of a prompt into the cache, after what is committed."""
        raise NotImplementedError

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Bring a path's rows to where committed ones belong; ``length`` is not yet moved."""
        raise NotImplementedError

    def _held(self) -> list[Rows]:
        """The cache, ``[entries, kv_heads, slots, width]`` each; committed rows come first."""
        raise NotImplementedError

    def _take_over(self, rows: Sequence[Rows], length: int) -> None:
        """Let the cache begin with these, shaped as ``_held`` but of ``length`` slots."""
        raise NotImplementedError

    def _give_back(self) -> None:
        """Give the cache's memory back."""
        raise NotImplementedError

    # -- what all share -------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self._length

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Commit tokens, in chunks."""
        self._check_open()
        if self._pending:
            raise StateError("prefill() while a tree is pending: call commit() first")
        self._check_room(len(tokens))
        self._check_tokens(tokens)
        for start in range(0, len(tokens), self.prefill_chunk):
            self._runner.check_interrupt()
            chunk = tokens[start : start + self.prefill_chunk]
            self._read(chunk)
            self._length += len(chunk)
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def commit(self, path: Sequence[int]) -> None:
        """Keep a path of the pending tree."""
        self._check_open()
        tree = self._tree
        if tree is None:
            raise StateError("commit() without a pending tree: call forward() first")
        if not tree.is_path(path) or (path and path[-1] >= self._pending):
            raise StateError(f"commit({list(path)}): not a path of the pending tree")
        self._keep(tree, path)
        self._length += len(path)
        self._drop()

    def rollback(self, length: int) -> None:
        """Go back to an absolute length."""
        self._check_open()
        self._check_length("rollback", length)
        self._length = length
        self._drop()

    def save(self, file: BinaryIO) -> None:
        """Write the committed rows."""
        self._check_open()
        model, payload = self._saveable.fingerprint, rows_of(self._held(), self._length)
        snapshot.write(
            file, runtime=self.runtime, model=model, length=self._length, payload=payload
        )

    def load(self, file: BinaryIO) -> None:
        """Take over saved rows."""
        self._check_open()
        held = self._held()
        most = self.capacity * token_bytes(held)
        length, payload = snapshot.read(
            file, runtime=self.runtime, model=self._saveable.fingerprint, most=most
        )
        self._take_over(rows_from(payload, held, length), length)
        self._length = length
        self._drop()

    def interrupt(self) -> None:
        """From another thread: stop the running pass, or the next."""
        self._runner.options.terminate = True

    def close(self) -> None:
        """Give the cache back."""
        if not self._closed:
            self._closed = True
            self._drop()
            self._runner.close()
            self._give_back()

    def _next_tokens(self, tree: TokenTree, start: int) -> list[int]:
        """The tokens a forward pass computes, when it may."""
        self._check_open()
        count = len(tree)
        if start != self._pending:
            raise StateError(f"forward() from node {start}: {self._pending} nodes are pending")
        if start >= count:
            raise StateError(f"forward() from node {start}: the tree has {count} nodes")
        self._saveable.capabilities.check_branches(tree)
        self._check_room(count)
        tokens = tree.tokens[start:]
        self._check_tokens(tokens)
        self._runner.check_interrupt()
        return tokens

    def _drop(self) -> None:
        self._tree, self._pending = None, 0

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the session is closed: open a new one")

    def _check_length(self, call: str, length: int) -> None:
        if not 0 <= length <= self._length:
            raise StateError(f"{call}({length}): expected 0..{self._length}")

    def _check_room(self, count: int) -> None:
        if self._length + count > self.capacity:
            raise CapacityExceeded(
                f"{self._length} + {count} tokens: the session holds {self.capacity}"
            )

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocab_size):
            raise StateError(f"a token outside the vocabulary: expected 0..{self._vocab_size - 1}")
