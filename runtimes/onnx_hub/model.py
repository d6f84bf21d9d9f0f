"""Weights on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedec.bundle import ready_onnx
from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.session_base import check_capacity
from edgedec.decoding.tree import TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort.opening import default_threads, model_file, open_inference
from edgedec.runtimes._ort.packed import open_kept
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes._ort.session import OrtModel, OrtSession
from edgedec.runtimes.onnx_hub import trial
from edgedec.runtimes.onnx_hub.graph import HubGraph, Mode, own_facts
from edgedec.runtimes.onnx_hub.passes import HubPasses

MODEL_FILE = "optimum.onnx"
_TOP_K = 8


class HubSession(OrtSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``HubModel.open``.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.

    """

    runtime = "onnx-hub"

    def __init__(self, model: OrtModel[HubGraph], capacity: int) -> None:
        self._model = model
        slots = capacity + model.graph.mode.multiple - 1
        self._cache = model.graph.new_cache(slots)
        self._passes = HubPasses(model.graph, self._cache, slots)
        super().__init__(model, capacity, self._passes)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        tokens = tree.tokens[start:]
        self._passes.run(tokens, self._length + start, head=True)
        logits = self._passes.logits[: len(tokens)]
        return Scored(start, logits, self._model.capabilities.top_k, want)

    def _copy(self, length: int) -> HubSession:
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


class HubModel(OrtModel[HubGraph]):
    """Implements ``edgedec.decoding.session.Model``; made by ``HubModel.load``.

    Attributes:
        info: facts about the model.
        capabilities: features of its sessions.
        session: the class of its sessions.

    """

    session = HubSession

    def __init__(self, file: Path, graph: HubGraph, weight_bytes: int, threads: int) -> None:
        facts = graph.facts
        super().__init__(file, graph)
        self.capabilities = Capabilities(
            branches=1,
            top_k=min(_TOP_K, facts.vocab_used),
            snapshot=True,
            verifies=not graph.mode.alone,
        )
        self.info = ModelInfo(
            name=facts.name,
            vocab_size=facts.vocab_size,
            eos_ids=facts.eos_ids,
            max_context=facts.max_context,
            kv_bytes_per_token=graph.token_bytes,
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
        mode: Mode | None = None,
    ) -> HubModel:
        """Load a graph with its facts beside it, or one that ``edgedec export`` made with optimum.

        Args:
            path: the graph, or the folder of ``optimum.onnx``.
            threads: for one pass; None is one per core this process may use, fewer for a
                model of a few megabytes.
            providers: execution providers, most wanted first; none is the CPU's.
            device: a device's name as ``edgedec devices`` lists it.
            batch_invariant: True is refused, since rows that only pad a pass would be copied
                back and forth with the cache.
            mode: how its passes are run; None as a trial in a child process has found.

        Raises:
            BundleError: the file is missing, damaged, or computes something else than a decoder.
            RuntimeUnavailable: a provider did not load, or batch invariance was asked for.

        """
        file = model_file(path, MODEL_FILE)
        if batch_invariant:
            raise RuntimeUnavailable(
                f"{file}: its format has no batch invariance: load it without"
                " batch_invariant (--no-batch-invariant), or export the model to onnx"
            )
        stored = read_model_file(file)
        facts = ready_onnx.read(file)
        if facts is None:  # compared with its source when it was exported
            facts, mode = own_facts(file, stored), Mode(shared=False)
        mode = mode or trial.found(file).mode
        threads = threads or default_threads(stored.weight_bytes)
        inference = open_kept(file, stored, threads, providers, device)
        inference = inference or open_inference(file, stored, threads, providers, device)
        graph = HubGraph.of(inference, facts, str(file), mode)
        return cls(file, graph, stored.weight_bytes, threads)

    def open(self, capacity: int) -> HubSession:
        """Return a new, empty session."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)
