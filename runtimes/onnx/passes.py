"""One session's passes over a graph, without copies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from edgedec.decoding.tree import FloatArray, IntArray
from edgedec.runtimes._ort.runner import OrtRunner, Runner
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.graph import CARRIED, Graph
from edgedec.runtimes.onnx.recurrent import buffers

_FIRST_ROWS = 256
_FIRST_HEAD_ROWS = 16
_MAX_BINDINGS = 64
# Before 1.31 TopK divides by zero without rows, so one unused row is computed.
_LEAST_ROWS = 0 if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 31) else 1


class GraphPasses(Runner):
    """Passes of one session over a cache, independently of the runtime.

    Attributes:
        logits, top_logits, top_ids: of the last pass with a head, one row per token; the next pass
            may overwrite them.
        shows_states: whether passes return the residual streams that the graph shows.
        states: those of the last such pass, one array for each, with a row per token; likewise.
        carried: of a head, the states that the next pass reads, ``[tokens, hidden]``.

    """

    logits: FloatArray
    top_logits: FloatArray
    top_ids: IntArray
    shows_states: bool = False
    states: Sequence[FloatArray] = ()
    carried: FloatArray | None = None

    def run(
        self,
        tokens: Sequence[int],
        past: int,
        *,
        head: bool,
        positions: Sequence[int] | None = None,
        mask: tuple[int, FloatArray] | None = None,
        rows: int = 0,
    ) -> None:
        """Compute these tokens into slots ``past`` and following.

        Args:
            tokens: one per row.
            past: number of slots before them that they attend to.
            head: compute logits, in the first rows of the outputs.
            positions: one per row; None is the slot.
            mask: attention bias from a slot on, ``(slot, [rows, columns])``: 0 or -inf. Rows
                without one attend to all slots up to their own.
            rows: number of rows that attention computes at least, by repeating the last one; more
                than ``tokens`` only if the graph's attention has rows of its own.

        Raises:
            Interrupted: ``stop`` was set.
            StateError: closed meanwhile.
            PassFailed: it cannot be computed.

        """
        with self._busy:
            self._check_open()
            self._locked_run(tokens, past, head, positions, mask, max(rows, len(tokens)))

    @abstractmethod
    def _locked_run(
        self,
        tokens: Sequence[int],
        past: int,
        head: bool,
        positions: Sequence[int] | None,
        mask: tuple[int, FloatArray] | None,
        rows: int,
    ) -> None:
        """Compute a pass, see ``run``, while holding the lock."""

    @abstractmethod
    def trim(self) -> None:
        """Release the memory of wide passes, which is allocated again when needed."""


class Passes(OrtRunner, GraphPasses):
    """Runs passes over one cache, with inputs and outputs in memory that is bound once.

    A binding is kept for each number of rows; between passes only the attention bias is bound
    again, since its last dimension must be exactly the total length.
    """

    def __init__(self, graph: Graph, cache: KvCache) -> None:
        super().__init__(graph.inference)
        self._graph, self._cache = graph, cache
        states = graph.facts.states
        self._recent = None
        if states is not None and cache.recent is not None:
            self._recent = buffers(cache.recent, states.layers)
        self._bindings: dict[tuple[int, int, bool, bool, int], ort.IOBinding] = {}
        # Memory of the bindings: attention rows, by numbers of rows.
        self._repeated: dict[tuple[int, int], IntArray] = {}
        self._past_length = np.zeros(1, np.int32)
        self._total = np.zeros((), np.int32)
        self._bias = np.zeros(0, np.float32)
        self._bias_at = 0
        self._make_inputs(_FIRST_ROWS)
        self._make_outputs(_FIRST_HEAD_ROWS)
        self._make_states(0)

    def _locked_run(
        self,
        tokens: Sequence[int],
        past: int,
        head: bool,
        positions: Sequence[int] | None,
        mask: tuple[int, FloatArray] | None,
        rows: int,
    ) -> None:
        count = len(tokens)
        total = past + rows
        wanted = self._recent.begin(past, count) if self._recent is not None else 0
        known = self._bindings.get((count, rows, head, self.shows_states, wanted))
        binding = known or self._bind(count, rows, head, wanted)
        self._ids[:count] = tokens
        if positions is None:
            np.add(self._index[:count], past, out=self._positions[:count])
        else:
            self._positions[:count] = positions
        if self.carried is not None:
            self._carried[:count] = self.carried
        self._bind_moving(binding)
        self._past_length[0] = total - 1
        self._total[()] = total
        if rows * total > self._bias.size:
            self._bias = np.zeros(2 * rows * total, np.float32)
            self._bias_at = self._bias.ctypes.data
        binding.bind_input(
            "attention_bias", "cpu", 0, np.float32, (1, 1, rows, total), self._bias_at
        )
        self._computed(binding, mask, rows, total)
        if self._recent is not None:
            self._recent.written(past)

    def _computed(
        self, binding: ort.IOBinding, mask: tuple[int, FloatArray] | None, rows: int, total: int
    ) -> None:
        """Execute a pass, under its mask."""
        if mask is None:
            self._attempt(self._pass, binding)
            return
        slot, values = mask
        shown = self._bias[: rows * total].reshape(rows, total)
        shown = shown[: values.shape[0], slot : slot + values.shape[1]]
        shown[...] = values
        try:
            self._attempt(self._pass, binding)
        finally:
            shown[...] = 0  # chains rely on a bias of zeros

    def trim(self) -> None:
        with self._busy:
            self._bias, self._bias_at = np.zeros(0, np.float32), 0
            self._make_outputs(1)
            self._make_states(0)
            if self._recent is not None:
                self._recent.trim()

    def _release(self) -> None:
        super()._release()
        self._bindings.clear()
        del self._graph, self._cache
        self._recent = None

    def _make_inputs(self, rows: int) -> None:
        self._bindings.clear()
        self._ids, self._positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._index: IntArray = np.arange(rows, dtype=np.int64)
        reads = rows if self._graph.facts.reads else 0
        self._carried = np.zeros((reads, self._graph.hidden), np.float32)

    def _make_outputs(self, rows: int) -> None:
        self._bindings.clear()
        facts = self._graph.facts
        self.logits = np.empty((rows, facts.vocab_size), np.float32)
        self.top_logits = np.empty((rows, facts.top_k), np.float32)
        self.top_ids = np.empty((rows, facts.top_k), np.int64)

    def _make_states(self, rows: int) -> None:
        self._bindings.clear()
        graph = self._graph
        self.states = [np.empty((rows, graph.hidden), np.float32) for _ in graph.facts.taps]

    def _bind(self, count: int, rows: int, head: bool, states: int) -> ort.IOBinding:
        """Bind all but the attention bias for these numbers of rows and of attention rows."""
        # Layers that only read others' keys compute all rows if some logits are wanted.
        shows = self.shows_states and self._graph.facts.varied is not None
        wanted = count if head else max(_LEAST_ROWS, int(shows))
        self._reserve(count, rows, wanted)
        binding = self._graph.inference.io_binding()
        self._bindings[count, rows, head, self.shows_states, states] = binding
        facts = self._graph.facts
        for name, array, shape in (
            ("input_ids", self._ids, (1, count)),
            ("position_ids", self._positions, (1, count)),
            ("seqlens_k", self._past_length, (1,)),
            ("total_sequence_length", self._total, ()),
            ("rows", self._index, (wanted,)),
        ):
            _bind(binding.bind_input, name, array, shape)
        self._bind_states(binding, (1, count, self._graph.hidden))
        if self._graph.own_rows:
            chosen = _attention_rows(count, rows)
            chosen = self._repeated.setdefault((count, rows), chosen)
            _bind(binding.bind_input, "attention_rows", chosen, (rows,))
            _bind(binding.bind_input, "computed_rows", self._index, (count,))
        _bind(binding.bind_output, "logits", self.logits, (wanted, facts.vocab_size))
        _bind(binding.bind_output, "top_logits", self.top_logits, (wanted, facts.top_k))
        _bind(binding.bind_output, "top_ids", self.top_ids, (wanted, facts.top_k))
        for name, group, entry in self._graph.caches:
            # A layer that reads another's keys writes back to them what they already are.
            part = self._cache.groups[group][entry]
            shape = (1, *part.shape)
            _bind(binding.bind_input, f"past_{name}", part, shape)
            _bind(binding.bind_output, f"present_{name}", part, shape)
        self._bind_recent(binding)
        return binding

    def _reserve(self, count: int, rows: int, wanted: int) -> None:
        """Make room for a pass of ``count`` tokens, at other addresses if there is none."""
        if rows > len(self._ids):
            self._make_inputs(2 * rows)
        if wanted > len(self.logits):
            self._make_outputs(2 * wanted)
        if self.shows_states and count > len(self.states[0]):
            self._make_states(2 * count)
        if self._recent is not None and self._recent.reserve(count):
            self._bindings.clear()
        if len(self._bindings) >= _MAX_BINDINGS:
            self._bindings.clear()

    def _bind_recent(self, binding: ort.IOBinding) -> None:
        """Bind what layers without keys and values read and write."""
        if self._recent is not None:
            for named in self._recent.inputs():
                _bind(binding.bind_input, *named)
            for named in self._recent.outputs():
                _bind(binding.bind_output, *named)

    def _bind_moving(self, binding: ort.IOBinding) -> None:
        """Bind the inputs and outputs whose address changes from pass to pass."""
        if self._recent is not None:
            for named in self._recent.moving_inputs():
                _bind(binding.bind_input, *named)
            for named in self._recent.moving_outputs():
                _bind(binding.bind_output, *named)

    def _bind_states(self, binding: ort.IOBinding, shape: tuple[int, int, int]) -> None:
        """Bind the residual streams that are wanted, and those that a head reads."""
        facts = self._graph.facts
        if facts.reads:
            _bind(binding.bind_input, CARRIED, self._carried, shape)
        if self.shows_states:
            for name, array in zip(facts.taps, self.states, strict=True):
                _bind(binding.bind_output, name, array, shape)


def _attention_rows(count: int, rows: int) -> IntArray:
    """Return which of ``count`` rows attention computes: all, with the last one repeated."""
    chosen: IntArray = np.minimum(np.arange(rows, dtype=np.int64), count - 1)
    return chosen


def _bind(bind: Any, name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    bind(name, "cpu", 0, array.dtype.type, shape, array.ctypes.data)
