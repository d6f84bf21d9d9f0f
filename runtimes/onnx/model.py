"""Weights on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgedec.decoding.session import Capabilities, ModelInfo
from edgedec.errors import BundleError, CapacityExceeded, RuntimeUnavailable, StateError
from edgedec.placement.device import available_cores
from edgedec.runtimes.onnx.file import read_model_file
from edgedec.runtimes.onnx.graph import Graph, GraphFacts
from edgedec.runtimes.onnx.padding import (
    CHEAP_PADDINGS,
    NO_PADDING,
    PADDINGS,
    PROBE_SLOTS,
    Padding,
    Rows,
    find_padding,
)
from edgedec.runtimes.onnx.passes import Passes
from edgedec.runtimes.onnx.saved import fingerprint
from edgedec.runtimes.onnx.session import OnnxSession

CPU = "CPUExecutionProvider"
MODEL_FILE = "model.onnx"
_SPIN_US = 100
_BYTES_PER_THREAD = 1_500_000
# Weights from this size on come from memory in every pass, whatever the cache.
_STREAMED_BYTES = 64 << 20


class OnnxModel:
    """Implements ``edgedec.decoding.session.Model``; made by ``OnnxModel.load``.

    Attributes:
        info: facts about the model.
        capabilities: what its sessions can do.
        padding: of its sessions' passes.
        session: the class of its sessions.

    """

    session = OnnxSession

    def __init__(
        self, file: Path, graph: Graph, weight_bytes: int, padding: Padding | None, threads: int
    ) -> None:
        facts = graph.facts
        self._file = file
        self._graph: Graph | None = graph
        self.padding = padding or NO_PADDING
        self.capabilities = Capabilities(
            top_k=facts.top_k, row_invariant=padding is not None, snapshot=True
        )
        self.info = ModelInfo(
            name=facts.name,
            vocab_size=facts.vocab_size,
            eos_ids=facts.eos_ids,
            # The kernel refuses passes that reach beyond the rotary tables, padding included.
            max_context=max(1, facts.max_context - self.padding.slack),
            kv_bytes_per_token=graph.kv_bytes_per_token,
            weight_bytes=weight_bytes,
            threads=threads,
        )

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        providers: Sequence[str] = (CPU,),
        row_invariant: bool | None = None,
    ) -> OnnxModel:
        """Load a graph that ``edgedec export`` wrote.

        Args:
            path: ``model.onnx``, or the folder it stands in.
            threads: for one pass; None is one per core this process may use, fewer for a
                model of a few megabytes.
            providers: execution providers, most wanted first. The CPU stands in for
                operators that another one lacks.
            row_invariant: pad passes so that a row's numbers do not depend on how many rows
                are computed with it, bit for bit, for chains. None does so for weights too
                large for caches: there a lone row that becomes two costs nothing that can
                be measured, while for small ones it would make rounds that draft nothing
                slower than plain decoding. A draft model wants False, since only the
                target's numbers decide the text.

        Raises:
            BundleError: the file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: a provider did not load, or row invariance was asked for
                and no padding gives it here.

        """
        file = Path(path)
        file = file / MODEL_FILE if file.is_dir() else file
        stored = read_model_file(file)
        facts = GraphFacts.parse(stored.metadata, str(file))
        threads = threads or default_threads(stored.weight_bytes)
        graph = Graph.of(_open(file, threads, providers or (CPU,)), facts, str(file))
        padding = None
        if row_invariant is not False:
            padding = _find_padding(graph, _to_try(row_invariant, stored.weight_bytes))
        if row_invariant and padding is None:
            raise RuntimeUnavailable(
                f"{file}: no padding makes rows independent of each other on this machine: "
                "load it without row_invariant"
            )
        return cls(file, graph, stored.weight_bytes, padding, threads)

    @property
    def graph(self) -> Graph:
        """What is run.

        Raises:
            StateError: the model is closed.

        """
        if self._graph is None:
            raise StateError("the model is closed: load it again")
        return self._graph

    @functools.cached_property
    def fingerprint(self) -> str:
        """What a saved state must be of."""
        return fingerprint(self._file)

    def open(self, capacity: int) -> OnnxSession:
        """A new, empty session."""
        if not 1 <= capacity <= self.info.max_context:
            raise CapacityExceeded(f"capacity {capacity}: expected 1..{self.info.max_context}")
        return self.session(self, capacity, self.padding)

    def close(self) -> None:
        """Give the weights back; they go when the last session is closed too."""
        self._graph = None


def devices() -> list[str]:
    """Providers that this ONNX Runtime has, and the devices it sees."""
    found = [f"{name} (onnxruntime {ort.__version__})" for name in ort.get_available_providers()]
    for device in getattr(ort, "get_ep_devices", list)():
        kind = str(device.device.type).rpartition(".")[2]
        found.append(f"{device.ep_name}: {kind} by {device.device.vendor or device.ep_vendor}")
    return found


def _open(file: Path, threads: int, providers: Sequence[str]) -> ort.InferenceSession:
    available = ort.get_available_providers()
    for name in providers:
        if name not in available:
            raise RuntimeUnavailable(
                f"provider {name!r} is not in this onnxruntime: it has {', '.join(available)}"
            )
    try:
        inference = ort.InferenceSession(
            os.fspath(file), _options(threads), list(providers), enable_fallback=0
        )
    except Exception as error:  # ONNX Runtime's own errors share no public base
        reason = str(error).strip().splitlines()[0]
        raise BundleError(f"{file}: ONNX Runtime cannot load it: {reason}") from error
    missing = [name for name in providers if name not in inference.get_providers()]
    if missing:
        raise RuntimeUnavailable(f"{missing[0]} did not load: its libraries or device are missing")
    return inference


def _options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised
    # Every pass has another total length: a pattern for each is memory that never comes back.
    options.enable_mem_pattern = False
    # A pool that never spins is no faster than one thread (waking costs more than a small
    # product takes); one that spins for long steals the core from the other model's pool.
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
    return options


def default_threads(weight_bytes: int) -> int:
    """One thread per core this process may use, but none for a share that is not worth it."""
    return max(1, min(available_cores(), weight_bytes // _BYTES_PER_THREAD))


def _to_try(row_invariant: bool | None, weight_bytes: int) -> Sequence[Padding]:
    if row_invariant:
        return PADDINGS
    return CHEAP_PADDINGS if weight_bytes >= _STREAMED_BYTES else (NO_PADDING,)


def _find_padding(graph: Graph, paddings: Sequence[Padding]) -> Padding | None:
    if graph.facts.max_context < PROBE_SLOTS:
        return None

    cache = graph.new_cache(PROBE_SLOTS)
    passes = Passes(graph, cache)

    def run(padding: Padding, tokens: Sequence[int], past: int) -> Rows:
        count = len(tokens)
        passes.run(padding.pad(tokens), past, head=True)
        written = cache.rows[:, :, past : past + count]
        return passes.logits[:count].copy(), np.moveaxis(written, 2, 0).copy()

    try:
        return find_padding(run, graph.facts.vocab_size, paddings)
    finally:
        passes.close()
        cache.close()
