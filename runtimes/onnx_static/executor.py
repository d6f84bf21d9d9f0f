"""Computes graphs of static shape on ONNX Runtime, over a cache in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec.decoding.session_base import Stop
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.memory import release, reserve
from edgedec.runtimes._ort.runner import OrtRunner, Run
from edgedec.runtimes._static.executor import Array, Feeds
from edgedec.runtimes.onnx_static.facts import StaticFacts

# Given to a pass along with its inputs: the slots that get its rows.
SLOTS = "slots"
# Opens the graph of a width, or ``read``.
Open = Callable[[str], ort.InferenceSession]
_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


class StaticExecutor:
    """Implements ``edgedec.runtimes._static.executor.Executor``; graphs open when first needed."""

    value_bytes = 4

    def __init__(self, facts: StaticFacts, open_graph: Open) -> None:
        self._facts, self._open = facts, open_graph
        self._graphs: dict[str, ort.InferenceSession] = {}
        self._opening = threading.Lock()

    def graph(self, name: str) -> ort.InferenceSession:
        """Return the graph of a width, or ``read``."""
        with self._opening:
            if name not in self._graphs:
                self._graphs[name] = self._open(name)
            return self._graphs[name]

    def new_state(self) -> StaticPasses:
        return StaticPasses(self._facts)

    def stop_of(self, state: StaticPasses) -> Stop:
        return state.stop

    def predict(
        self, function: str, feeds: Feeds, state: StaticPasses, check: Callable[[], None]
    ) -> dict[str, Array]:
        kind, _, rows = function.partition("_")
        name = "read" if kind == "read" else rows
        found = state.run(name, int(rows), self.graph(name), feeds)
        wanted = {"logits": ("logits",), "top": ("top_logits", "top_ids")}.get(kind, ())
        names = ("top_0", "top_1") if kind == "top" else wanted
        return {to: found[name] for to, name in zip(names, wanted, strict=True)}

    def read(self, state: StaticPasses) -> Array:
        return state.cache

    def write(self, state: StaticPasses, cache: Array) -> None:
        state.cache[...] = cache

    def release(self, state: StaticPasses) -> None:
        state.close()

    def close(self) -> None:
        self._graphs.clear()


@dataclass(frozen=True, slots=True)
class _Bound:
    """A graph with its inputs and outputs in memory that stays where it is.

    Attributes:
        binding: ONNX Runtime's.
        inputs, outputs: by name, without the cache.
        copied: inputs that ONNX Runtime copies to a device when they are bound, the cache included;
            none where the processor computes, which reads them where they are.
        rows: keys and values of the tokens, ``[2 * layers, kv_heads, n, head_dim]``.

    """

    binding: ort.IOBinding
    run: Run
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    copied: Mapping[str, Array]
    rows: Array


class StaticPasses(OrtRunner):
    """One sequence's cache, and its passes.

    Attributes:
        cache: keys in even entries, values in odd ones, ``[2 * layers, kv_heads, slots,
            head_dim]``.

    """

    def __init__(self, facts: StaticFacts) -> None:
        super().__init__()
        self._facts = facts
        self._bound: dict[str, _Bound] = {}
        size = int(np.prod(facts.cache)) * np.dtype(np.float32).itemsize
        self._map = reserve(size)
        buffer = self._map if self._map is not None else np.zeros(size, np.uint8)
        self.cache: Array = np.frombuffer(buffer, np.float32).reshape(facts.cache)

    def run(
        self, name: str, rows: int, graph: ort.InferenceSession, feeds: Feeds
    ) -> Mapping[str, Array]:
        """Compute a graph, and write its tokens into their slots.

        Returns:
            Its outputs, valid until it is computed again.

        Raises:
            Interrupted: ``stop`` was set; the cache is as before.
            StateError: closed meanwhile.

        """
        with self._busy:
            self._check_open()
            bound = self._bound.get(name) or self._bind(name, rows, graph)
            for given, buffer in bound.inputs.items():
                buffer[...] = feeds[given]
            for given, array in bound.copied.items():
                _bind(bound.binding.bind_input, given, array)
            self._run = bound.run
            self._attempt(self._pass, bound.binding)
            self._run = None
            slots = feeds[SLOTS]
            self.cache[:, :, slots] = bound.rows[:, :, : len(slots)]
            return bound.outputs

    def _bind(self, name: str, rows: int, graph: ort.InferenceSession) -> _Bound:
        facts, binding = self._facts, graph.io_binding()
        arrays: dict[str, Array] = {}
        entries, heads, _, width = facts.cache
        new = np.zeros((entries, heads, rows, width), np.float32)
        caches = dict(zip(facts.caches("past_"), self.cache, strict=True))
        for given, (type, shape) in facts.inputs(rows).items():
            arrays[given] = caches.get(given, np.zeros(shape, _DTYPES[type]))
            _bind(binding.bind_input, given, arrays[given])
        written = dict(zip(facts.caches(""), new, strict=True))
        outputs: dict[str, Array] = {}
        for made, (type, shape) in facts.outputs(rows, head=name != "read").items():
            if made not in written:
                outputs[made] = np.zeros(shape, _DTYPES[type])
            _bind(binding.bind_output, made, written.get(made, outputs.get(made)))
        inputs = {given: array for given, array in arrays.items() if given not in caches}
        copied = {} if set(graph.get_providers()) == {CPU} else arrays
        bound = _Bound(binding, graph.run_with_iobinding, inputs, outputs, copied, new)
        self._bound[name] = bound
        return bound

    def _release(self) -> None:
        super()._release()
        self._bound.clear()
        self.cache = np.zeros((0, 0, 0, 0), np.float32)
        if self._map is not None:
            release(self._map)


def _bind(bind: Any, name: str, array: Any) -> None:
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
