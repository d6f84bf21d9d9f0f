"""Models that say what a recorded text says and take as long as a place was measured to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CapacityExceeded, Interrupted, StateError
from edgedec.overlap.clock import Clock, Signal
from edgedec.replay.costs import PassCost
from edgedec.replay.rows import DRAFT, TARGET, TraceRows
from edgedec.replay.sharing import Shared

# The logit of a token that was not recorded.
_ABSENT = -30.0
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock and the shared resources of a simulated model.

    Attributes:
        clock: virtual.
        shared: what it shares with another model.
        overhead_s: of Python beside passes: a round's for the target, a pass's for the draft.
        more_s: likewise, more for a round of the target that has a draft; for each row of a
            pass of the draft.
        token_s: likewise, more for each token that the target commits.

    """

    clock: Clock
    shared: Shared
    overhead_s: float = 0.0
    more_s: float = 0.0
    token_s: float = 0.0


class TraceModel:
    """A ``Model`` made of a trace and pass times. What it says is greedy, also where the trace
    was sampled: the order of its rows is the one after the noise.

    Attributes:
        rows: what it says. Sessions take note of another text when they are rolled back.
        role: ``target`` or ``draft``.
        cost: what its passes take.
        around: what it runs in.

    """

    def __init__(self, rows: TraceRows, role: str, cost: PassCost, around: Surroundings) -> None:
        measured = cost.measured
        self.rows, self.role, self.cost, self.around = rows, role, cost, around
        self.capabilities = Capabilities(
            branches=measured.branches,
            row_widths=measured.row_widths,
            top_k=rows.ids.shape[1],
            row_invariant=True,
        )
        self.info = ModelInfo(
            name=measured.name,
            vocab_size=rows.vocab_size,
            eos_ids=(),
            max_context=measured.max_context,
            kv_bytes_per_token=measured.kv_bytes_per_token,
            weight_bytes=measured.weight_bytes,
            threads=measured.place.threads or 1,
        )

    def open(self, capacity: int) -> TraceSession:
        """An empty session."""
        if not 1 <= capacity <= self.info.max_context:
            raise CapacityExceeded(f"capacity {capacity}: expected 1..{self.info.max_context}")
        return TraceSession(self, capacity)

    def close(self) -> None:
        """Nothing to give back."""


class TraceSession:
    """A cache that is a list of tokens, and knows how many of the first are the trace's."""

    def __init__(self, model: TraceModel, capacity: int) -> None:
        self.capacity = capacity
        self._model = model
        self._rows = model.rows
        self._held: list[int] = []
        self._right = 0
        self._tree: TokenTree | None = None
        # For each pending node, whether it and all before it are the text's.
        self._true: list[bool] = []
        self._interrupted = False
        self._wake: Signal = model.around.clock.signal()
        self._closed = False

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self._held)

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Append tokens, some at a time."""
        self._check_open()
        if self._tree is not None:
            raise StateError("prefill() while a tree is pending: call commit() first")
        self._check_fits(len(tokens), tokens)
        for start in range(0, len(tokens), _CHUNK):
            chunk = tokens[start : start + _CHUNK]
            self._compute(self._model.cost.reading(len(chunk), self.length < self._rows.prompt))
            self._append(chunk)
            if on_chunk is not None:
                on_chunk(start + len(chunk), len(tokens))

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Rows for ``nodes[start:]``, after the seconds they take."""
        self._check_open()
        if start != len(self._true):
            raise StateError(f"forward() from node {start}: {len(self._true)} nodes are pending")
        if start >= len(tree):
            raise StateError(f"forward() from node {start}: the tree has {len(tree)} nodes")
        self._model.capabilities.check_branches(tree)
        self._check_fits(len(tree), tree.tokens[start:])
        self._compute(self._model.cost.seconds(len(tree) - start, self.length + start))
        if self._model.role == DRAFT:
            around = self._model.around
            around.shared.interpret(around.overhead_s + around.more_s * (len(tree) - start))
        places = self._places(tree, start)
        self._tree = tree
        rows = self._rows
        ids, logits = rows.ids[places], rows.logits[places]
        return Pass(start, ids, logits, self._all(ids, logits) if want & Want.LOGITS else None)

    def commit(self, path: Sequence[int]) -> None:
        """Keep a path of the pending tree."""
        self._check_open()
        tree = self._tree
        if tree is None:
            raise StateError("commit() without a pending tree: call forward() first")
        if not tree.is_path(path) or any(node >= len(self._true) for node in path):
            raise StateError(f"commit({list(path)}): not a path of the pending tree")
        if self._model.role == TARGET:
            # Once a round, between passes: where the engine's own work shows in its times.
            around = self._model.around
            more_s = around.more_s if len(tree) > 1 else 0.0
            around.shared.interpret(around.overhead_s + more_s + len(path) * around.token_s)
        self._append(tree.tokens_on(path))
        self._forget()

    def rollback(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        self._check_open()
        self._check_length("rollback", length)
        del self._held[length:]
        if self._rows is not self._model.rows:
            self._rows, self._right = self._model.rows, 0
        self._right = self._rows.right(min(self._right, length), self._held)
        self._forget()

    def fork(self, length: int) -> TraceSession:
        """A copy of the first ``length`` tokens."""
        self._check_open()
        self._check_length("fork", length)
        other = self._model.open(self.capacity)
        other._held = self._held[:length]
        other._rows, other._right = self._rows, min(self._right, length)
        return other

    def save(self, file: BinaryIO) -> None:
        """Not possible: there are no keys and values."""
        raise StateError("a simulated session cannot be saved")

    def load(self, file: BinaryIO) -> None:
        """Likewise."""
        raise StateError("a simulated session cannot be loaded")

    def interrupt(self) -> None:
        """From another task: the running pass, or the next one, raises Interrupted."""
        self._interrupted = True
        self._wake.set()

    def close(self) -> None:
        """No further use."""
        self._closed = True

    def _compute(self, seconds: float) -> None:
        """Let the pass take its time, unless it is interrupted."""
        around, model = self._model.around, self._model
        if not self._interrupted:
            around.shared.compute(model.role, self._wake, seconds, lambda: self._interrupted)
        if self._interrupted:
            self._interrupted = False
            self._wake.clear()
            raise Interrupted("interrupted")

    def _places(self, tree: TokenTree, start: int) -> list[int]:
        """The row of each node from ``start`` on; notes which of them are the text's."""
        rows, true, length = self._rows, self._true, self.length
        text, places = rows.tokens, []
        whole = self._right == length
        for node in range(start, len(tree)):
            token, parent = tree.tokens[node], tree.parents[node]
            place = length + tree.depths[node]
            before = whole if parent < 0 else true[parent]
            right = before and place < len(text) and text[place] == token
            true.append(right)
            places.append(rows.row(place, token, right=right))
        return places

    def _all(self, ids: np.ndarray, logits: FloatArray) -> FloatArray:
        """Rows of the whole vocabulary; what was not recorded is very unlikely."""
        whole: FloatArray = np.full((len(ids), self._rows.vocab_size), _ABSENT, np.float32)
        np.put_along_axis(whole, ids, logits, axis=1)
        return whole

    def _append(self, tokens: Sequence[int]) -> None:
        known = self._right if self._right == len(self._held) else None
        self._held += tokens
        if known is not None:
            self._right = self._rows.right(known, self._held)

    def _forget(self) -> None:
        self._tree, self._true = None, []

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the session is closed: open a new one")

    def _check_length(self, call: str, length: int) -> None:
        if not 0 <= length <= self.length:
            raise StateError(f"{call}({length}): expected 0..{self.length}")

    def _check_fits(self, count: int, tokens: Sequence[int]) -> None:
        if self.length + count > self.capacity:
            raise CapacityExceeded(
                f"{self.length} + {count} tokens: the session holds {self.capacity}"
            )
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._rows.vocab_size):
            raise StateError(
                f"a token outside the vocabulary: expected 0..{self._rows.vocab_size - 1}"
            )
