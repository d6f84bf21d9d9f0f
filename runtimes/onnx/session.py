"""One sequence on ONNX Runtime.

Slots 0..length of the cache are committed; a pending tree's nodes follow in their own order,
so a chain that is accepted lies where it belongs already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec.decoding import snapshot
from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CapacityExceeded, StateError
from edgedec.runtimes.onnx.padding import Padding
from edgedec.runtimes.onnx.passes import Passes
from edgedec.runtimes.onnx.saved import put_rows, rows_of

if TYPE_CHECKING:
    from edgedec.runtimes.onnx.model import OnnxModel

PREFILL_CHUNK = 128


class OnnxSession:
    """Implements ``edgedec.decoding.session.Session``; made by ``OnnxModel.open``.

    Args:
        model: whose weights it shares.
        capacity: tokens that fit.
        padding: how many rows a pass gets; rows added repeat the last token and are never
            seen.

    """

    def __init__(self, model: OnnxModel, capacity: int, padding: Padding) -> None:
        self.capacity = capacity
        self._model = model
        self._vocab_size = model.info.vocab_size
        self._padding = padding
        # A padded pass writes beyond the last node.
        self._cache = model.graph.new_cache(capacity + padding.slack)
        self._passes = Passes(model.graph, self._cache)
        self._length = 0
        self._tree: TokenTree | None = None
        self._pending = 0
        self._mask: FloatArray = np.zeros((0, 0), np.float32)
        self._masked = 0
        self._closed = False

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self._length

    # -- reading --------------------------------------------------------------------------------

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Commit tokens, in chunks."""
        self._check_open()
        if self._pending:
            raise StateError("prefill() while a tree is pending: call commit() first")
        self._check_room(len(tokens))
        self._check_tokens(tokens)
        for start in range(0, len(tokens), PREFILL_CHUNK):
            self._passes.check_interrupt()
            chunk = tokens[start : start + PREFILL_CHUNK]
            self._passes.run(self._padding.pad(chunk), self._length, head=False)
            self._length += len(chunk)
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Rows for ``nodes[start:]``."""
        self._check_open()
        count = len(tree)
        if start != self._pending:
            raise StateError(f"forward() from node {start}: {self._pending} nodes are pending")
        if start >= count:
            raise StateError(f"forward() from node {start}: the tree has {count} nodes")
        self._check_room(count)
        tokens = tree.tokens[start:]
        self._check_tokens(tokens)
        passes = self._passes
        passes.check_interrupt()
        if self._length == 0 and start == 0 and count > 1:
            return self._first(tree, want)
        if tree.is_chain:
            passes.run(self._padding.pad(tokens), self._length + start, head=True)
        else:
            self._branches(tree, start)
        self._tree, self._pending = tree, count
        rows = count - start
        logits = passes.logits[:rows] if want & Want.LOGITS else None
        return Pass(start, passes.top_ids[:rows], passes.top_logits[:rows], logits)

    def _first(self, tree: TokenTree, want: Want) -> Pass:
        """With an empty cache the kernel reads the first position only: the root goes alone."""
        self._passes.run(self._padding.pad(tree.tokens[:1]), 0, head=True)
        root = [a[:1].copy() for a in self._outputs()]
        self._tree, self._pending = tree, 1
        try:
            # The cache is as after any other root, if not yet committed.
            self._branches(tree, 1)
        except BaseException:
            self._drop()
            raise
        self._pending = len(tree)
        rest = [a[: len(tree) - 1] for a in self._outputs()]
        ids, top, logits = (np.concatenate(both) for both in zip(root, rest, strict=True))
        return Pass(0, ids, top, logits if want & Want.LOGITS else None)

    def _branches(self, tree: TokenTree, start: int) -> None:
        """A pass whose rows see their own ancestors only."""
        length = self._length
        tokens = self._padding.pad(tree.tokens[start:])
        depths = tree.depths[start:]
        depths += [depths[-1]] * (len(tokens) - len(depths))
        self._passes.run(
            tokens,
            length + start,
            head=True,
            positions=[length + depth for depth in depths],
            mask=(length, self._ancestors(tree, start)),
        )

    def _ancestors(self, tree: TokenTree, start: int) -> FloatArray:
        """0 for ancestors and the node itself, -inf elsewhere: ``[count - start, count]``.

        Rows are kept while the tree is pending, so that one that grows costs its new nodes.
        """
        count = len(tree)
        self._masked = min(self._masked, start)  # a pass that failed may have left more
        if count > len(self._mask):
            self._mask = np.full((2 * count, 2 * count), -np.inf, np.float32)
            self._masked = 0
        mask = self._mask
        for node in range(self._masked, count):
            parent = tree.parents[node]
            mask[node, :node] = mask[parent, :node] if node else 0
            mask[node, node] = 0
        self._masked = count
        return mask[start:count, :count]

    # -- committing and going back --------------------------------------------------------------

    def commit(self, path: Sequence[int]) -> None:
        """Keep a path of the pending tree."""
        self._check_open()
        tree = self._tree
        if tree is None:
            raise StateError("commit() without a pending tree: call forward() first")
        if not tree.is_path(path) or (path and path[-1] >= self._pending):
            raise StateError(f"commit({list(path)}): not a path of the pending tree")
        if not tree.is_chain:
            self._cache.move([self._length + node for node in path], self._length)
        self._length += len(path)
        self._drop()

    def rollback(self, length: int) -> None:
        """Go back to an absolute length."""
        self._check_open()
        if not 0 <= length <= self._length:
            raise StateError(f"rollback({length}): expected 0..{self._length}")
        self._length = length
        self._drop()

    def fork(self, length: int) -> OnnxSession:
        """A new session with a copy of the first ``length`` tokens."""
        self._check_open()
        if not 0 <= length <= self._length:
            raise StateError(f"fork({length}): expected 0..{self._length}")
        other = OnnxSession(self._model, self.capacity, self._padding)
        other._cache.copy_from(self._cache, length)
        other._length = length
        return other

    def save(self, file: BinaryIO) -> None:
        """Write the committed rows."""
        self._check_open()
        snapshot.write(
            file,
            runtime="onnx",
            model=self._model.fingerprint,
            length=self._length,
            payload=[rows_of(self._cache, self._length)],
        )

    def load(self, file: BinaryIO) -> None:
        """Take over saved rows."""
        self._check_open()
        most = self._model.info.kv_bytes_per_token * self.capacity
        length, payload = snapshot.read(
            file, runtime="onnx", model=self._model.fingerprint, most=most
        )
        put_rows(self._cache, payload, length)
        self._length = length
        self._drop()

    def interrupt(self) -> None:
        """From another thread: stop the running pass, or the next."""
        self._passes.options.terminate = True

    def close(self) -> None:
        """Give the cache back."""
        if not self._closed:
            self._closed = True
            self._drop()
            self._passes.close()
            self._cache.close()

    # -- helpers --------------------------------------------------------------------------------

    def _outputs(self) -> tuple[npt.NDArray[Any], ...]:
        passes = self._passes
        return passes.top_ids, passes.top_logits, passes.logits

    def _drop(self) -> None:
        self._tree, self._pending, self._masked = None, 0, 0

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the session is closed: open a new one")

    def _check_room(self, count: int) -> None:
        if self._length + count > self.capacity:
            raise CapacityExceeded(
                f"{self._length} + {count} tokens: the session holds {self.capacity}"
            )

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocab_size):
            raise StateError(f"a token outside the vocabulary: expected 0..{self._vocab_size - 1}")
