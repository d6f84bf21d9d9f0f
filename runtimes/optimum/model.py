"""Weights on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.session import Capabilities, ModelInfo
from edgedec.decoding.session_base import check_capacity
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort.opening import default_threads, model_file, open_inference
from edgedec.runtimes._ort.packed import open_kept
from edgedec.runtimes._ort.session import OrtModel
from edgedec.runtimes.optimum.graph import PastGraph, PastGraphFacts
from edgedec.runtimes.optimum.session import OptimumSession

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
