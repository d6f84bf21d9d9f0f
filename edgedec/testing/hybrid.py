"""A fake hybrid: its memory is a state of fixed size and the tokens of the last passes.

The state is a digest of all tokens, as of a recurrence, and the last two of them, as of a
convolution. The logits are a hash of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, NamedTuple

import numpy as np

from edgedec.decoding import snapshot, trail
from edgedec.decoding.session import OnChunk, Pass, Rollback, Want
from edgedec.decoding.session_base import SnapshotSession, check_capacity
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import SnapshotError
from edgedec.testing.fake import FakeModel

_TAPS, _DIGEST = 2, 8


class FakeState(NamedTuple):
    """The state after a text."""

    digest: bytes = bytes(_DIGEST)
    window: tuple[int, ...] = (0,) * _TAPS

    def after(self, tokens: Sequence[int]) -> FakeState:
        """Return the state some tokens later."""
        digest, window = self
        for token in tokens:
            digest = hashlib.blake2b(digest + bytes([token]), digest_size=_DIGEST).digest()
        return FakeState(digest, (*window, *tokens)[-_TAPS:])


@dataclass
class FakeMemory:
    """What a session keeps of its text.

    Attributes:
        state: before the tokens of the last passes.
        rows: those tokens, of which the text has the first ``kept`` so far.
        kept: how many.

    """

    state: FakeState = field(default_factory=FakeState)
    rows: tuple[int, ...] = ()
    kept: int = 0

    def now(self) -> FakeState:
        """Return the state after the rows that are kept."""
        return self.state.after(self.rows[: self.kept])

    def begin(self) -> None:
        """Commit the rows that are kept, at the start of a pass; forget the others."""
        self.state, self.rows, self.kept = self.now(), (), 0

    def add(self, tokens: Sequence[int]) -> None:
        """Keep a pass's rows."""
        self.rows = (*self.rows[: self.kept], *tokens)
        self.kept = len(self.rows)


class FakeTrail(trail.Trail[FakeMemory, FakeState]):
    """Drops the rows of the last passes, as often as it is asked to."""

    def __init__(self, memory: FakeMemory) -> None:
        self._memory = memory
        super().__init__()

    def _drops(self, length: int) -> bool:
        return self.end - length <= self._memory.kept

    def _drop(self, cache: FakeMemory, length: int) -> bool:
        cache.kept -= self.end - length
        return True

    def _state(self, cache: FakeMemory, length: int) -> FakeState:
        return cache.now()

    def _put(self, cache: FakeMemory, state: FakeState | None, length: int) -> None:
        cache.state, cache.rows, cache.kept = state or FakeState(), (), 0

    def _read(self, cache: FakeMemory, tokens: Sequence[int], at: int) -> None:
        cache.begin()
        cache.add(tokens)

    def _exact(self, cache: FakeMemory) -> bool:
        return False


class HybridFakeModel(FakeModel):
    """A fake whose sessions have a state."""

    memory: type[FakeMemory] = FakeMemory

    def __init__(self, vocab_size: int = 16, *, seed: int = 0) -> None:
        super().__init__(vocab_size, seed=seed)
        self.capabilities = replace(self.capabilities, branches=1, rollback=Rollback.RECENT)

    def of_state(self, state: FakeState) -> FloatArray:
        """Return the logits after a text, ``[vocab]`` float32."""
        return self._own((state.digest, state.window)).astype(np.float32)

    def open(self, capacity: int) -> HybridFakeSession:  # type: ignore[override]
        check_capacity(capacity, self.info.max_context)
        return HybridFakeSession(self, capacity)


class HybridFakeSession(SnapshotSession):
    """A session over a ``FakeMemory``."""

    runtime = "fake hybrid"
    prefill_chunk = 4

    def __init__(self, model: HybridFakeModel, capacity: int) -> None:
        super().__init__(capacity, model.info.vocab_size, model.capabilities)
        self._model, self._memory = model, model.memory()
        self._trail = FakeTrail(self._memory)

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._memory.begin()
            self._compute(chunk)
            self._trail.prefilled(self._memory, len(chunk))

    def _compute(self, tokens: Sequence[int]) -> None:
        self._memory.add(tokens)
        self._trail.computed(self._memory, tokens)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        model, memory = self._model, self._memory
        if not start:
            memory.begin()
        before, tokens = memory.now(), tree.tokens[start:]
        ends = range(1, len(tokens) + 1)
        logits = np.stack([model.of_state(before.after(tokens[:end])) for end in ends])
        self._compute(tokens)
        model.passes += 1
        order = np.argsort(-logits, axis=1, kind="stable")[:, : model.capabilities.top_k]
        top = np.take_along_axis(logits, order, axis=1)
        return Pass(start, order, top, logits if want & Want.LOGITS else None)

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        self._trail.go_back(self._memory, self._length + len(path))
        self._trail.committed(self._memory)

    def _cut(self, length: int) -> None:
        self._trail.check(length)
        self._trail.go_back(self._memory, length)

    def _copy(self, length: int) -> HybridFakeSession:
        self._trail.check(length)
        other = self._model.open(self.capacity)
        memory = other._memory
        memory.state, memory.rows, memory.kept = (
            self._memory.state,
            self._memory.rows,
            self._memory.kept,
        )
        other._trail.follow(self._trail)
        other._trail.go_back(memory, length)
        return other

    def _fingerprint(self) -> str:
        return self._model.name

    def _state(self) -> snapshot.Payload:
        digest, window = self._memory.state.after(
            self._memory.rows[: self._memory.kept - self._pending]
        )
        return [digest, bytes(window)]

    def _most_bytes(self) -> int:
        return _DIGEST + _TAPS

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        if len(payload) != self._most_bytes():
            raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
        memory = self._memory
        memory.state = FakeState(bytes(payload[:_DIGEST]), tuple(payload[_DIGEST:]))
        memory.rows, memory.kept = (), 0
        self._trail.clear()
        self._trail.begin(memory, length)
        return length
