"""Runs passes over one cache; shapes and addresses are bound again each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgedec.bundle.ready_onnx import (
    IDS,
    KEEP,
    LOGITS,
    MASK,
    PAST_LENGTH,
    POSITIONS,
    TOTAL_LENGTH,
)  # fmt: skip
from edgedec.decoding.tree import FloatArray
from edgedec.runtimes._ort.runner import OrtRunner
from edgedec.runtimes.onnx_hub.cache import PastCache, SharedCache
from edgedec.runtimes.onnx_hub.graph import HubGraph

_FIRST_ROWS = 16


class HubPasses(OrtRunner):
    """Runs passes over one cache.

    Args:
        graph: computes them.
        slots: tokens that fit into it, padding included.

    Attributes:
        logits: of the latest pass, ``[rows, vocab]``; more rows than it had.

    """

    def __init__(self, graph: HubGraph, cache: PastCache | SharedCache, slots: int) -> None:
        super().__init__(graph.inference)
        self._graph, self._cache = graph, cache
        self._names = graph.names
        # Two bindings, since a bound output is always computed.
        self._bindings = {head: graph.inference.io_binding() for head in (True, False)}
        self._inputs = {
            role: (np.arange if role == POSITIONS else np.ones)(slots, dtype=kind)
            for role, kind in graph.wholes.items()
        }
        self._make_logits(_FIRST_ROWS)

    def run(self, tokens: Sequence[int], past: int, *, head: bool) -> None:
        """Compute these tokens after the first ``past`` held ones; later ones are dropped.

        Args:
            past: tokens to keep before them.
            head: compute logits, in the first rows of ``logits``.

        Raises:
            Interrupted: ``stop`` was set; the first ``past`` tokens are held.
            StateError: closed meanwhile.

        """
        with self._busy:
            self._check_open()
            count = len(tokens)
            if head and count + self._graph.mode.multiple > len(self.logits):
                self._make_logits(2 * count + self._graph.mode.multiple)
            step = 1 if self._graph.mode.alone else count
            for row in range(0, count, step):
                self._compute(tokens[row : row + step], past + row, row, head)
            if head:
                self._finish(count)

    def _compute(self, tokens: Sequence[int], past: int, row: int, head: bool) -> None:
        self._cache.keep(past)
        count = self._graph.rows(len(tokens), past)
        self._inputs[IDS][:count] = [*tokens, *[tokens[0]] * (count - len(tokens))]
        binding = self._bindings[head]
        self._bind(binding, count, past)
        if head:
            shape = (1, count, self._scored.shape[1])
            name, kind = self._graph.facts.called(LOGITS), self._scored.dtype.type
            binding.bind_output(name, "cpu", 0, kind, shape, self._scored[row:].ctypes.data)
        # A prompt's rows do not need the head, the largest product of a small model.
        self.options.only_execute_path_to_fetches = not head
        self._attempt(self._pass, binding)
        self._cache.written(past + count)

    def _finish(self, count: int) -> None:
        """Give the logits of a pass the form that others expect."""
        if self.logits is not self._scored:
            self.logits[:count] = self._scored[:count]
        self.logits[:count, self._graph.facts.vocab_used :] = -np.inf

    def _release(self) -> None:
        super()._release()
        self._bindings.clear()
        del self._graph, self._cache

    def _make_logits(self, rows: int) -> None:
        shape = rows, self._graph.facts.vocab_size
        self._scored = np.empty(shape, self._graph.logits_dtype)
        half = self._scored.dtype != np.float32
        self.logits: FloatArray = np.empty(shape, np.float32) if half else self._scored

    def _bind(self, binding: Any, count: int, past: int) -> None:
        total = past + count
        lengths = {KEEP: count, PAST_LENGTH: past, TOTAL_LENGTH: total}
        shapes = {IDS: (1, count), POSITIONS: (1, count), MASK: (1, total)}
        for role, array in self._inputs.items():
            if role in lengths:
                array[0] = lengths[role]
            start = past if role == POSITIONS else 0
            shape = shapes.get(role, () if role in self._graph.scalars else (1,))
            name, at = self._graph.facts.called(role), array[start:].ctypes.data
            binding.bind_input(name, "cpu", 0, array.dtype.type, shape, at)
        kind = self._graph.kv_dtype.type
        old, new = self._cache.sides(past, total)
        bind_input, bind_output = binding.bind_input, binding.bind_output
        entries = zip(self._names, old.addresses, new.addresses, strict=True)
        for (name, present, group), source, to in entries:
            heads, width = group.heads, group.width
            bind_input(name, "cpu", 0, kind, (1, heads, old.slots, width), source)
            bind_output(present, "cpu", 0, kind, (1, heads, new.slots, width), to)
