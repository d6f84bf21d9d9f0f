"""A model without weights: its logits are a hash of everything a token can see.

Any mistake in a cache (a wrong row, a sibling that leaks, a rollback that forgets) changes
the context and so every number that follows.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CapacityExceeded, Interrupted, StateError


class FakeModel:
    """A deterministic distribution over a small vocabulary.

    Args:
        vocab_size: tokens.
        seed: of the hash; equal seeds are equal models.
        context: how many of the last tokens the logits depend on; None is all of them.
        sharpness: standard deviation of the logits; larger is more predictable.
        like: a model to resemble, and how much: ``(model, 0.8)`` gives a useful draft.
        eos_ids: tokens that end a text.
        max_context: tokens a session may hold.

    """

    def __init__(
        self,
        vocab_size: int = 16,
        *,
        seed: int = 0,
        context: int | None = None,
        sharpness: float = 2.0,
        like: tuple[FakeModel, float] | None = None,
        eos_ids: tuple[int, ...] = (),
        max_context: int = 4096,
    ) -> None:
        self._seed = seed
        self._context = context
        self._sharpness = sharpness
        self._like = like
        self.capabilities = Capabilities(
            top_k=min(8, vocab_size), row_invariant=True, snapshot=True
        )
        self.info = ModelInfo("fake", vocab_size, eos_ids, max_context, 1, 0)
        self.name = f"fake-{seed}-{context}-{sharpness}-{vocab_size}"
        self.passes = 0

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """Logits of the token after ``tokens``, ``[vocab]`` float32."""
        seen = tuple(tokens) if self._context is None else tuple(tokens)[-self._context :]
        digest = hashlib.blake2b(repr((self._seed, seen)).encode(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        own = rng.standard_normal(self.info.vocab_size) * self._sharpness
        if self._like is not None:
            other, share = self._like
            own = share * other.logits(tokens) + (1 - share) * own
        return own.astype(np.float32)

    def open(self, capacity: int) -> FakeSession:
        """An empty session."""
        if not 1 <= capacity <= self.info.max_context:
            raise CapacityExceeded(f"capacity {capacity}: expected 1..{self.info.max_context}")
        return FakeSession(self, capacity)

    def close(self) -> None:
        """Nothing to give back."""


class FakeSession:
    """A cache that is a list of tokens, with the same state machine as a real one."""

    prefill_chunk = 4

    def __init__(self, model: FakeModel, capacity: int) -> None:
        self._model = model
        self.capacity = capacity
        self._committed: list[int] = []
        self._tree: TokenTree | None = None
        self._pending = 0
        self._stop = threading.Event()
        self._closed = False

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self._committed)

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Append tokens, a few at a time."""
        self._check_open()
        if self._pending:
            raise StateError("prefill() while a tree is pending: call commit() first")
        self._check_room(len(tokens))
        self._check_tokens(tokens)
        for start in range(0, len(tokens), self.prefill_chunk):
            self._check_interrupt()
            chunk = tokens[start : start + self.prefill_chunk]
            self._committed += chunk
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Rows for ``nodes[start:]``."""
        self._check_open()
        if start != self._pending:
            raise StateError(f"forward() from node {start}: {self._pending} nodes are pending")
        if start >= len(tree):
            raise StateError(f"forward() from node {start}: the tree has {len(tree)} nodes")
        self._model.capabilities.check_branches(tree)
        self._check_room(len(tree))
        self._check_tokens(tree.tokens[start:])
        self._check_interrupt()
        rows = [
            self._model.logits(self._committed + tree.tokens_on(tree.path_to(node)))
            for node in range(start, len(tree))
        ]
        self._model.passes += 1
        self._tree, self._pending = tree, len(tree)
        logits = np.stack(rows)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self._model.capabilities.top_k]
        top = np.take_along_axis(logits, order, axis=1)
        return Pass(start, order, top, logits if want & Want.LOGITS else None)

    def commit(self, path: Sequence[int]) -> None:
        """Keep a path of the pending tree."""
        self._check_open()
        if self._tree is None:
            raise StateError("commit() without a pending tree: call forward() first")
        if not self._tree.is_path(path) or any(node >= self._pending for node in path):
            raise StateError(f"commit({list(path)}): not a path of the pending tree")
        self._committed += self._tree.tokens_on(path)
        self._tree, self._pending = None, 0

    def rollback(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        self._check_open()
        if not 0 <= length <= len(self._committed):
            raise StateError(f"rollback({length}): expected 0..{len(self._committed)}")
        del self._committed[length:]
        self._tree, self._pending = None, 0

    def fork(self, length: int) -> FakeSession:
        """A copy of the first ``length`` tokens."""
        self._check_open()
        if not 0 <= length <= len(self._committed):
            raise StateError(f"fork({length}): expected 0..{len(self._committed)}")
        other = self._model.open(self.capacity)
        other._committed = self._committed[:length]
        return other

    def save(self, file: BinaryIO) -> None:
        """Its tokens, in 8 bytes each."""
        self._check_open()
        payload = np.array(self._committed, np.int64).tobytes()
        snapshot.write(
            file, runtime="fake", model=self._model.name, length=self.length, payload=[payload]
        )

    def load(self, file: BinaryIO) -> None:
        """Take over the tokens of a saved session."""
        self._check_open()
        _, payload = snapshot.read(
            file, runtime="fake", model=self._model.name, most=8 * self.capacity
        )
        self._committed = np.frombuffer(payload, np.int64).tolist()
        self._tree, self._pending = None, 0

    def interrupt(self) -> None:
        """Make the running or next call raise Interrupted."""
        self._stop.set()

    def close(self) -> None:
        """No further use."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the session is closed: open a new one")

    def _check_room(self, count: int) -> None:
        if len(self._committed) + count > self.capacity:
            raise CapacityExceeded(
                f"{len(self._committed)} + {count} tokens: the session holds {self.capacity}"
            )

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        size = self._model.info.vocab_size
        if not all(0 <= token < size for token in tokens):
            raise StateError(f"a token outside the vocabulary: expected 0..{size - 1}")

    def _check_interrupt(self) -> None:
        if self._stop.is_set():
            self._stop.clear()
            raise Interrupted("interrupted")
