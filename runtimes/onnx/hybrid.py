"""One sequence whose layers have keys and values, or the rows of the last tokens and a state.

Nothing is copied to reject drafts: the rows of a pass are written behind those before it, and the
next pass reads the ones before the position at which it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, BinaryIO

import numpy as np

from edgedec.decoding import snapshot, trail
from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import SnapshotError
from edgedec.runtimes._ort.saved import token_bytes
from edgedec.runtimes._ort.session import OrtModel
from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.padding import Padding
from edgedec.runtimes.onnx.recent import Copy, RecentRows
from edgedec.runtimes.onnx.session import OnnxSession

# Most rows behind a saved state: more than a round has.
_MOST_PENDING = 256


class HybridSession(OnnxSession):
    """Implements ``edgedec.decoding.session.Session`` for graphs with ``GraphFacts.states``.

    Args:
        model, capacity, padding: as of ``OnnxSession``.

    """

    def __init__(self, model: OrtModel[Graph], capacity: int, padding: Padding) -> None:
        super().__init__(model, capacity, padding)
        assert self._cache.recent is not None, "OnnxModel chooses this class by the graph"
        self._recent: RecentRows = self._cache.recent
        self._trail = RecentTrail(self._recent)

    @property
    def exact(self) -> bool:
        """Whether a row's bits do not depend on its pass."""
        return self._capabilities.batch_invariant

    # -- computing ------------------------------------------------------------------------------

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        self._passes.shows_states = self._on_states is not None
        for chunk in self._chunks(tokens, on_chunk):
            self._recent.held_from = None
            self._run(chunk, self._length, head=False)
            self._trail.computed(self, chunk)
            self._trail.prefilled(self, len(chunk))

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        self._recent.held_from = self._length
        scored = super()._score(tree, start, want)
        self._trail.computed(self, tree.tokens[start:])
        return scored

    def _run(self, tokens: Sequence[int], past: int, **how: Any) -> None:
        self._recent.real = len(tokens)  # others pad the pass
        super()._run(tokens, past, **how)

    def read(self, tokens: Sequence[int], at: int) -> None:
        """Compute tokens again, behind ``at`` others."""
        self._recent.held_from = None
        for start in range(0, len(tokens), self.prefill_chunk):
            self._run(tokens[start : start + self.prefill_chunk], at + start, head=False)

    def _place(self, at: int) -> None:
        self._recent.go(None, at)

    # -- committing and going back --------------------------------------------------------------

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        self._go_back(self._length + len(path))
        self._trail.committed(self)

    def _cut(self, length: int) -> None:
        self._trail.check(length)
        self._go_back(length)

    def _copy(self, length: int) -> HybridSession:
        self._trail.check(length)
        other = super()._copy(length)
        assert isinstance(other, HybridSession)
        other._recent.copy_from(self._recent)
        other._trail.follow(self._trail)
        other._go_back(length)
        return other

    def _go_back(self, length: int) -> None:
        """Go back; if tokens must be computed again and that fails, the session is empty."""
        try:
            self._trail.go_back(self, length)
        except BaseException:
            self._length = 0
            self._tree, self._pending = None, 0
            self._trail.clear()
            self._recent.clear()
            raise

    # -- saving ---------------------------------------------------------------------------------

    def _state(self) -> snapshot.Payload:
        copy = self._recent.copy(self._length)
        return [*super()._state(), *(part.tobytes() for part in copy)]

    def _most_bytes(self) -> int:
        return super()._most_bytes() + self._copy_bytes(_MOST_PENDING)

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        at = length * token_bytes(self._held())
        pending = (len(payload) - at - self._copy_bytes(0)) // self._row_bytes
        if not 0 <= pending <= _MOST_PENDING or len(payload) != at + self._copy_bytes(pending):
            raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
        copy: list[FloatArray] = []
        kept = payload[:at]
        for shape in self._recent.sizes(pending):
            count = prod(shape)
            numbers = snapshot.numbers(payload, np.dtype(np.float32), count, at)
            copy.append(numbers.reshape(shape).copy())
            at += 4 * count
        super()._restore(kept, length, rest)
        self._recent.go(tuple(copy), length)
        self._trail.clear()
        self._trail.begin(self, length)
        return length

    def _copy_bytes(self, pending: int) -> int:
        return 4 * sum(prod(shape) for shape in self._recent.sizes(pending))

    @property
    def _row_bytes(self) -> int:
        layers, _, width = self._recent.shape
        return 4 * layers * width


class RecentTrail(trail.Trail[HybridSession, Copy]):
    """Drops tokens whose rows are still there, as often as it is asked to.

    Args:
        recent: the session's rows.

    """

    def __init__(self, recent: RecentRows) -> None:
        self._recent = recent
        super().__init__()

    def _drops(self, length: int) -> bool:
        return self._recent.holds(length)

    def _drop(self, cache: HybridSession, length: int) -> bool:
        return True  # the next pass overwrites them

    def _state(self, cache: HybridSession, length: int) -> Copy:
        return self._recent.copy(length)

    def _put(self, cache: HybridSession, state: Copy | None, length: int) -> None:
        self._recent.go(state, length)

    def _read(self, cache: HybridSession, tokens: Sequence[int], at: int) -> None:
        cache.read(tokens, at)

    def _exact(self, cache: HybridSession) -> bool:
        return cache.exact
