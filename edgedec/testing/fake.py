"""A model without weights: its logits are a hash of everything a token can attend to.

Any mistake in a cache (a wrong row, a sibling that leaks, an incomplete rollback) changes the
context and so all logits that follow.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.session_base import SnapshotSession, check_capacity
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import SnapshotError

# Logits that a model remembers: 8 bytes each.
_REMEMBERED = 1 << 17


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
            top_k=min(8, vocab_size), batch_invariant=True, snapshot=True
        )
        self.info = ModelInfo("fake", vocab_size, eos_ids, max_context, 1, 0)
        self.name = f"fake-{seed}-{context}-{sharpness}-{vocab_size}"
        self.passes = 0
        # A text is decoded again and again, and to draw its numbers takes most of the time.
        self._own = functools.lru_cache(max(1, _REMEMBERED // vocab_size))(self._drawn)

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """Return the logits of the token after ``tokens``, ``[vocab]`` float32."""
        seen = tuple(tokens) if self._context is None else tuple(tokens)[-self._context :]
        own = self._own(seen)
        if self._like is not None:
            other, share = self._like
            own = share * other.logits(tokens) + (1 - share) * own
        return own.astype(np.float32)

    def _drawn(self, seen: tuple[int, ...]) -> npt.NDArray[np.float64]:
        digest = hashlib.blake2b(repr((self._seed, seen)).encode(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        return rng.standard_normal(self.info.vocab_size) * self._sharpness

    def open(self, capacity: int) -> FakeSession:
        """Return an empty session."""
        check_capacity(capacity, self.info.max_context)
        return FakeSession(self, capacity)

    def close(self) -> None:
        """Do nothing: nothing is held."""


class TappedFakeModel(FakeModel):
    """Shows residual streams of four channels before two layers."""

    def __init__(self, vocab_size: int = 16) -> None:
        super().__init__(vocab_size)
        self.capabilities = replace(self.capabilities, taps=(1, 3))

    def states(self, tokens: Sequence[int]) -> FloatArray:
        """Return the streams of the last token, which depend on all before it, ``[8]``."""
        return self.logits([*tokens, 0])[:8]


class FakeSession(SnapshotSession):
    """A session whose cache is a list of tokens."""

    runtime = "fake"
    prefill_chunk = 4

    def __init__(self, model: FakeModel, capacity: int) -> None:
        super().__init__(capacity, model.info.vocab_size, model.capabilities)
        self._model = model
        self._committed: list[int] = []

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._committed += chunk

    def _prefilled(self, count: int) -> FloatArray:
        held = self._committed
        return self._shown([held[: len(held) - left] for left in range(count)[::-1]])

    def _shown(self, texts: Sequence[Sequence[int]]) -> FloatArray:
        """Return the states of the last token of each text."""
        model = self._model
        assert isinstance(model, TappedFakeModel), "checked by SessionBase"
        return np.stack([model.states(text) for text in texts])

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        model = self._model
        texts = [
            self._committed + tree.tokens_on(tree.path_to(node)) for node in range(start, len(tree))
        ]
        rows = [model.logits(text) for text in texts]
        model.passes += 1
        logits = np.stack(rows)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : model.capabilities.top_k]
        top = np.take_along_axis(logits, order, axis=1)
        states = self._shown(texts) if want & Want.STATES else None
        return Pass(start, order, top, logits if want & Want.LOGITS else None, states)

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        self._committed += tree.tokens_on(path)

    def _cut(self, length: int) -> None:
        del self._committed[length:]

    def _copy(self, length: int) -> FakeSession:
        other = self._model.open(self.capacity)
        other._committed = self._committed[:length]
        return other

    def _fingerprint(self) -> str:
        return self._model.name

    def _state(self) -> snapshot.Payload:
        return [np.array(self._committed, np.int64).tobytes()]

    def _most_bytes(self) -> int:
        return 8 * self.capacity

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        if len(payload) != 8 * length:
            raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
        self._committed = np.frombuffer(payload, np.int64).tolist()
        return length
