"""One session's passes, each of which reads the whole cache and writes it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray
from edgedec.runtimes._ort.runner import OrtRunner
from edgedec.runtimes.optimum.cache import PastCache
from edgedec.runtimes.optimum.graph import POSITIONS, PastGraph

_FIRST_ROWS = 16


class PastPasses(OrtRunner):
    """Runs passes over one cache; shapes and addresses are bound again each time."""

    def __init__(self, graph: PastGraph, cache: PastCache, slots: int) -> None:
        super().__init__(graph.inference)
        self._graph, self._cache = graph, cache
        self._names = graph.names
        # Two bindings, since a bound output is always computed.
        self._bindings = {head: graph.inference.io_binding() for head in (True, False)}
        self._ids = np.zeros(slots, np.int64)
        self._seen = np.ones(slots, np.int64)
        self._positions = np.arange(slots, dtype=np.int64)
        self._make_logits(_FIRST_ROWS)

    def run(self, tokens: Sequence[int], past: int, *, head: bool) -> None:
        """Compute these tokens after the first ``past`` held ones; later ones are dropped.

        Args:
            tokens: one a row.
            past: tokens to keep before them.
            head: compute logits, in the first rows of ``logits``.

        Raises:
            Interrupted: ``stop`` was set; the first ``past`` tokens are held.
            StateError: closed meanwhile.

        """
        with self._busy:
            self._check_open()
            count = len(tokens)
            if head and count > len(self.logits):
                self._make_logits(2 * count)
            self._cache.keep(past)
            self._ids[:count] = tokens
            binding = self._bindings[head]
            self._bind(binding, count, past, head)
            # A prompt's rows do not need the head, the largest product of a small model.
            self.options.only_execute_path_to_fetches = not head
            self._execute(binding)
            self._cache.written(past + count)

    def _release(self) -> None:
        super()._release()
        self._bindings.clear()
        del self._graph, self._cache

    def _make_logits(self, rows: int) -> None:
        self.logits: FloatArray = np.empty((rows, self._graph.facts.vocab_size), np.float32)

    def _bind(self, binding: Any, count: int, past: int, head: bool) -> None:
        total = past + count
        self._bind_input(binding, "input_ids", self._ids, (1, count))
        self._bind_input(binding, "attention_mask", self._seen, (1, total))
        if self._graph.positions:
            self._bind_input(binding, POSITIONS, self._positions[past:], (1, count))
        if head:
            shape = (1, count, self.logits.shape[1])
            binding.bind_output("logits", "cpu", 0, np.float32, shape, self.logits.ctypes.data)
        kind, cache = self._graph.kv_dtype.type, self._cache
        old, new = cache.addresses(0, past), cache.addresses(1, total)
        bind_input, bind_output = binding.bind_input, binding.bind_output
        for (name, present, group), source, to in zip(self._names, old, new, strict=True):
            heads, width = group.heads, group.width
            bind_input(name, "cpu", 0, kind, (1, heads, past, width), source)
            bind_output(present, "cpu", 0, kind, (1, heads, total, width), to)

    @staticmethod
    def _bind_input(
        binding: Any, name: str, array: npt.NDArray[np.int64], shape: tuple[int, int]
    ) -> None:
        binding.bind_input(name, "cpu", 0, np.int64, shape, array.ctypes.data)
