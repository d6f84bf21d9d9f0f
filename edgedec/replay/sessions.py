"""Models that repeat a recorded text and take the pass times measured at a place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.session_base import SessionBase, check_capacity, check_interrupt
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError
from edgedec.overlap.clock import Clock, Signal
from edgedec.records.trace import Trace
from edgedec.replay.costs import PassCost
from edgedec.replay.sharing import Shared

# The logit of a token that was not recorded.
_ABSENT = -30.0


# -- rows of logits: the model's own on the text, plausible ones off it -------------------------

TARGET, DRAFT = "target", "draft"


class TraceRows:
    """A model's recorded rows after each prefix of a text, and similar ones elsewhere.

    Row i, below ``count``, is after ``tokens[: prompt + i]``, with the token that would be drawn
    first. Drafts after a wrong token are never accepted, so there a row only has to be plausible:
    what the model said the last time after the same token, or the row at the same position with
    other ids.

    Args:
        trace: of a text.
        role: ``target`` or ``draft``.
        vocab_size: ids are below it.

    Raises:
        InputError: the trace has no draft.

    """

    def __init__(self, trace: Trace, role: str, vocab_size: int) -> None:
        choices = trace.target if role == TARGET else trace.draft
        if choices is None:
            raise InputError(f"trace {trace.name!r} has no draft model: record it with one")
        self.tokens = trace.tokens
        self.prompt = trace.prompt
        self.count = len(choices.ids)
        self.vocab_size = vocab_size
        ids = np.array(choices.ids, np.int64)
        if role == TARGET:
            # At a near-tie a recorded row may disagree with the recorded text.
            ids[:, 0] = trace.tokens[trace.prompt : trace.prompt + self.count]
        chances = np.array(choices.probabilities, np.float32)
        # Confidence is the largest probability, whatever order the noise produced.
        logits = np.log(np.maximum(-np.sort(-chances, axis=1), 1e-12))
        self.ids = np.concatenate([ids, (ids + 1) % vocab_size])
        self.logits = np.concatenate([logits, logits])
        self._after: dict[int, list[int]] = {}
        for row in range(1, self.count):
            self._after.setdefault(trace.tokens[trace.prompt + row - 1], []).append(row)

    def right(self, known: int, held: Sequence[int]) -> int:
        """Return how many leading tokens are the text's; the first ``known`` all are."""
        text, end = self.tokens, min(len(held), len(self.tokens))
        while known < end and held[known] == text[known]:
            known += 1
        return known

    def row(self, place: int, token: int, *, right: bool) -> int:
        """Return the row after the token at ``place``; ``right``: all before it are the text's."""
        row = place + 1 - self.prompt
        if right and 0 <= row < self.count:
            return row
        # Never a later row: a drafter that learns from rows must not see the future.
        known = self._after.get(token, ())
        place = bisect_left(known, row)
        return known[place - 1] if place else self.count + min(max(row, 0), self.count - 1)


# -- models and their sessions ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock and the shared resources of a simulated model.

    Attributes:
        clock: virtual.
        shared: resources shared with another model.
        overhead_s: of Python outside passes: per round for the target, per pass for the draft.
        more_s: likewise, more for a round of the target that has a draft; for each row of a pass of
            the draft.
        token_s: likewise, more for each token that the target commits.

    """

    clock: Clock
    shared: Shared
    overhead_s: float = 0.0
    more_s: float = 0.0
    token_s: float = 0.0


class TraceModel:
    """A ``Model`` made of a trace and pass times.

    It is greedy even if the trace was sampled: its rows are ordered as they are after the noise.

    Attributes:
        rows: recorded rows. Sessions switch to another text when they are rolled back.
        role: ``target`` or ``draft``.
        cost: times of its passes.
        around: clock and shared resources.

    """

    def __init__(self, rows: TraceRows, role: str, cost: PassCost, around: Surroundings) -> None:
        measured = cost.measured
        self.rows, self.role, self.cost, self.around = rows, role, cost, around
        self.capabilities = Capabilities(
            branches=measured.branches,
            row_widths=measured.row_widths,
            top_k=rows.ids.shape[1],
            batch_invariant=True,
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
        """Return an empty session."""
        check_capacity(capacity, self.info.max_context)
        return TraceSession(self, capacity)

    def close(self) -> None:
        """Do nothing: a trace holds no resources."""


class WakingStop:
    """A stop request that wakes the pass it stops."""

    def __init__(self, wake: Signal) -> None:
        self._wake = wake
        self._requested = False

    def set(self) -> None:
        """Stop the running pass, or the next one."""
        self._requested = True
        self._wake.set()

    def clear(self) -> None:
        """Let passes run again."""
        self._requested = False
        self._wake.clear()

    def is_set(self) -> bool:
        """Return whether a stop was requested; the signal is also set for other reasons."""
        return self._requested


class TraceSession(SessionBase):
    """A session over a list of tokens that knows how many leading ones are the trace's."""

    prefill_chunk = 64

    def __init__(self, model: TraceModel, capacity: int) -> None:
        self._model = model
        self._rows = model.rows
        self._held: list[int] = []
        self._right = 0
        # For each pending node, whether it and all its ancestors are the text's.
        self._true: list[bool] = []
        self._wake: Signal = model.around.clock.signal()
        stop = WakingStop(self._wake)
        super().__init__(capacity, model.rows.vocab_size, model.capabilities, stop)

    def _read(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._compute(self._model.cost.reading(len(chunk), self._length < self._rows.prompt))
            self._append(chunk)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        model, count = self._model, len(tree) - start
        self._compute(model.cost.seconds(count, self._length + start))
        if model.role == DRAFT:
            around = model.around
            around.shared.interpret(around.overhead_s + around.more_s * count)
        places = self._places(tree, start)
        rows = self._rows
        ids, logits = rows.ids[places], rows.logits[places]
        return Pass(start, ids, logits, self._all(ids, logits) if want & Want.LOGITS else None)

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        if self._model.role == TARGET:
            # Charged once a round, between passes, where the engine's own work takes its time.
            around = self._model.around
            more_s = around.more_s if len(tree) > 1 else 0.0
            around.shared.interpret(around.overhead_s + more_s + len(path) * around.token_s)
        self._append(tree.tokens_on(path))

    def _cut(self, length: int) -> None:
        del self._held[length:]
        if self._rows is not self._model.rows:
            self._rows, self._right = self._model.rows, 0
        self._right = self._rows.right(min(self._right, length), self._held)

    def _copy(self, length: int) -> TraceSession:
        other = self._model.open(self.capacity)
        other._held = self._held[:length]
        other._rows, other._right = self._rows, min(self._right, length)
        return other

    def _compute(self, seconds: float) -> None:
        """Let the pass take its time, unless it is interrupted."""
        model, stop = self._model, self._stop
        model.around.shared.compute(model.role, self._wake, seconds, stop.is_set)
        check_interrupt(stop)

    def _places(self, tree: TokenTree, start: int) -> list[int]:
        """Return the row of each node from ``start`` on; notes which nodes are the text's."""
        if start == 0:
            self._true = []
        rows, true, length = self._rows, self._true, self._length
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
        """Return rows of the whole vocabulary; tokens that were not recorded are very unlikely."""
        whole: FloatArray = np.full((len(ids), self._rows.vocab_size), _ABSENT, np.float32)
        np.put_along_axis(whole, ids, logits, axis=1)
        return whole

    def _append(self, tokens: Sequence[int]) -> None:
        known = self._right if self._right == len(self._held) else None
        self._held += tokens
        if known is not None:
            self._right = self._rows.right(known, self._held)
