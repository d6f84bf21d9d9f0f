"""Weights on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.session_base import check_capacity
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort.opening import default_threads, model_file, open_inference
from edgedec.runtimes._ort.packed import open_kept
from edgedec.runtimes._ort.runner import OrtRunner
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes._ort.session import OrtModel, OrtSession
from edgedec.runtimes.optimum.cache import PastCache
from edgedec.runtimes.optimum.graph import POSITIONS, PastGraph, PastGraphFacts

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
            self._attempt(self._pass, binding)
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


class OptimumSession(OrtSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``OptimumModel.open``.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.

    """

    runtime = "optimum"

    def __init__(self, model: OrtModel[PastGraph], capacity: int) -> None:
        self._model = model
        self._cache = model.graph.new_cache(capacity)
        self._passes = PastPasses(model.graph, self._cache, capacity)
        super().__init__(model, capacity, self._passes)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        tokens = tree.tokens[start:]
        self._passes.run(tokens, self._length + start, head=True)
        logits = self._passes.logits[: len(tokens)]
        return Scored(start, logits, self._model.capabilities.top_k, want)

    def _copy(self, length: int) -> OptimumSession:
        other = type(self)(self._model, self.capacity)
        other._load_rows([rows[:, :, :length] for rows in self._cache.rows], length)
        return other

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._passes.run(chunk, self._length, head=False)

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Do nothing: a chain's rows are already in place."""

    def _held(self) -> list[Rows]:
        return self._cache.rows

    def _load_rows(self, rows: Sequence[Rows], length: int) -> None:
        self._cache.take(rows, length)

    def _free_cache(self) -> None:
        self._cache.close()


MODEL_FILE = "optimum.onnx"
_TOP_K = 8


class OptimumModel(OrtModel[PastGraph]):
    """Implements ``edgedec.decoding.session.Model``; made by ``OptimumModel.load``.

    Attributes:
        info: facts about the model. A token takes its cache's bytes twice, since a pass reads
            one copy and writes another.
        capabilities: features of its sessions.
        session: the class of its sessions.

    """

    session = OptimumSession

    def __init__(self, file: Path, graph: PastGraph, weight_bytes: int, threads: int) -> None:
        facts = graph.facts
        super().__init__(file, graph)
        self._token_bytes = graph.numbers * graph.kv_dtype.itemsize
        self.capabilities = Capabilities(
            branches=1, top_k=min(_TOP_K, facts.vocab_size), snapshot=True
        )
        self.info = ModelInfo(
            name=facts.name,
            vocab_size=facts.vocab_size,
            eos_ids=facts.eos_ids,
            max_context=facts.max_context,
            kv_bytes_per_token=2 * self._token_bytes,
            weight_bytes=weight_bytes,
            threads=threads,
        )

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        providers: Sequence[str] = (),
        device: str | None = None,
        batch_invariant: bool | None = None,
    ) -> OptimumModel:
        """Load a graph written by ``edgedec export`` with optimum.

        Args:
            path: ``optimum.onnx``, or its folder.
            threads: for one pass; None is one per core this process may use, fewer for a
                model of a few megabytes.
            providers: execution providers, most wanted first; none is the CPU's.
            device: a device's name as ``edgedec devices`` lists it.
            batch_invariant: True is refused, since rows that only pad a pass would be copied
                back and forth with the cache.

        Raises:
            BundleError: the file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: a provider did not load, or batch invariance was asked for.

        """
        file = model_file(path, MODEL_FILE)
        if batch_invariant:
            raise RuntimeUnavailable(
                f"{file}: the format optimum has no batch invariance: load it without"
                " batch_invariant (--no-batch-invariant), or export the model to onnx"
            )
        stored = read_model_file(file)
        facts = PastGraphFacts.parse(stored.metadata, str(file))
        threads = threads or default_threads(stored.weight_bytes)
        inference = open_kept(file, stored, threads, providers, device)
        inference = inference or open_inference(file, stored, threads, providers, device)
        graph = PastGraph.of(inference, facts, str(file))
        return cls(file, graph, stored.weight_bytes, threads)

    def open(self, capacity: int) -> OptimumSession:
        """Return a new, empty session."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)
