"""Weights on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec.bundle.onnx_file import ModelFile, read_model_file
from edgedec.decoding.session import Capabilities, ModelInfo, Rollback
from edgedec.decoding.session_base import check_capacity
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort.agreement import agree, probe_tokens
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.metadata import damaged
from edgedec.runtimes._ort.opening import (
    attention_by_rows,
    default_threads,
    model_file,
    open_inference,
)
from edgedec.runtimes._ort.packed import open_kept
from edgedec.runtimes._ort.saved import known_outcomes
from edgedec.runtimes._ort.session import OrtModel
from edgedec.runtimes.onnx.graph import Graph, GraphFacts
from edgedec.runtimes.onnx.hybrid import HybridSession
from edgedec.runtimes.onnx.padding import (
    HERE,
    KIND,
    LARGE_BYTES,
    MIDDLE_BYTES,
    MOST_COST,
    MOST_COST_OF_LARGE,
    NO_PADDING,
    PROBE,
    PROBE_SLOTS,
    USUAL_CONTEXT,
    Padding,
    Probe,
    Rows,
    find_padding,
    known_padding,
    require,
)
from edgedec.runtimes.onnx.passes import Passes
from edgedec.runtimes.onnx.recurrent import check_runtime
from edgedec.runtimes.onnx.session import OnnxSession

_log = logging.getLogger("edgedec")

MODEL_FILE = "model.onnx"
# Numbers of attention that one text shows well, and the most texts.
_SHOWN, _MOST_TEXTS = 256, 8
_COST_TURNS, _LEAST_COST_TURNS, _COST_S = 32, 4, 2.0


class OnnxModel(OrtModel[Graph]):
    """Implements ``edgedec.decoding.session.Model``; made by ``OnnxModel.load``.

    Attributes:
        info: facts about the model.
        capabilities: features of its sessions.
        padding: of its sessions' passes.
        session: the class of its sessions.

    """

    session: type[OnnxSession] = OnnxSession

    def __init__(
        self, file: Path, graph: Graph, weight_bytes: int, padding: Padding | None, threads: int
    ) -> None:
        facts = graph.facts
        super().__init__(file, graph)
        self.padding = padding or NO_PADDING
        if facts.states is not None:
            self.session = HybridSession
        self.capabilities = Capabilities(
            branches=None if facts.states is None else 1,
            rollback=Rollback.ANY if facts.states is None else Rollback.RECENT,
            top_k=facts.top_k,
            batch_invariant=padding is not None,
            snapshot=True,
            taps=tuple(facts.taps.values()),
            lends=graph.kv_dtype == np.float32,
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
            state_bytes=graph.state_bytes,
            lookup_bytes=facts.lookup_bytes,
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
        may_pad: bool = True,
    ) -> OnnxModel:
        """Load a graph that ``edgedec export`` wrote.

        Args:
            path: ``model.onnx``, or its folder.
            threads: threads of a pass; None is one per core this process may use, fewer for a
                model of a few megabytes.
            providers: execution providers in order of preference; empty for the CPU's. The CPU
                runs operators that another one lacks.
            device: a device's name as ``edgedec devices`` lists it.
            batch_invariant: pad passes so that a row's bits do not depend on how many rows are
                computed with it, for chains. None does so, where a padding achieves it, in graphs
                exported for it and, on the CPU, for weights of ``MIDDLE_BYTES`` or more if a lone
                row takes at most ``MOST_COST`` times as long, of ``LARGE_BYTES`` or more
                ``MOST_COST_OF_LARGE`` times;
                of a smaller model it claims invariance if no padding is needed.
                For a draft model use False: only the target's logits decide the text.
            may_pad: False has None treat all models like the smallest; graphs
                exported for batch invariance are padded nevertheless.

        Raises:
            BundleError: the file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: a provider did not load or computes incorrectly, batch invariance
                was asked for and no padding achieves it here, or ONNX Runtime is too old.

        """

        def inference(file: Path, stored: ModelFile, threads: int) -> Any:
            kept = open_kept(file, stored, threads, providers, device)
            return kept or open_inference(file, stored, threads, providers, device)

        return cls._load(path, inference, threads, batch_invariant, may_pad)

    @classmethod
    def _load(
        cls,
        path: Path | str,
        open_graph: Callable[[Path, ModelFile, int], Any],
        threads: int | None,
        batch_invariant: bool | None,
        may_pad: bool,
    ) -> OnnxModel:
        """Load a graph by a function of its file, what is stored in it, and threads."""
        file = model_file(path, MODEL_FILE)
        stored = read_model_file(file)
        facts = GraphFacts.parse(stored.metadata, str(file))
        if facts.states is not None and facts.states.state:
            check_runtime(str(file))
        if facts.looked_up > stored.weight_bytes:
            raise damaged(str(file))
        stored = replace(stored, looked_up=facts.looked_up)
        threads = threads or default_threads(stored.weight_bytes)
        # Of a small model, scores of whole rows would be a large part of its memory.
        by_rows = bool(batch_invariant) or stored.weight_bytes >= MIDDLE_BYTES
        with attention_by_rows(wanted=by_rows):
            graph = Graph.of(open_graph(file, stored, threads), facts, str(file))
        if not by_rows and graph.own_rows and facts.padding_asked:
            with attention_by_rows():
                graph = Graph.of(open_graph(file, stored, threads), facts, str(file))
        _check_cache(file, graph, graph.inference.get_providers())
        padding = _padding(file, stored, graph, threads, batch_invariant, may_pad=may_pad)
        return cls(file, graph, stored.weight_bytes, padding, threads)

    def open(self, capacity: int) -> OnnxSession:
        """Return a new, empty session."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity, self.padding)


def _check_cache(file: Path, graph: Graph, providers: Sequence[str]) -> None:
    foreign = [name for name in providers if name != CPU]
    if foreign and not cache_holds(graph):
        raise RuntimeUnavailable(
            f"{file}: {foreign[0]} does not handle this graph's cache correctly: choose another "
            "provider, or export the model with --static-rows 1,4,8,16"
        )


def _padding(
    file: Path,
    stored: ModelFile,
    graph: Graph,
    threads: int,
    batch_invariant: bool | None,
    *,
    may_pad: bool,
) -> Padding | None:
    """Return a padding that makes rows independent, or None if there is none and none is needed."""
    if batch_invariant is False:
        return None
    providers = graph.inference.get_providers()
    on_processor = set(providers) == {CPU}
    kernels = f"{ort.__version__} {ort.get_build_info()}" if on_processor else None
    # On an accelerator trees, which no padding makes invariant, are worth more.
    large = stored.weight_bytes >= LARGE_BYTES and on_processor
    middle = stored.weight_bytes >= MIDDLE_BYTES and on_processor and may_pad
    unasked = HERE.usual if middle or (large and may_pad) else HERE.free
    # Who exported a graph for it has asked for it.
    asked = batch_invariant or (graph.own_rows and graph.facts.padding_asked)
    paddings = HERE.asked if asked else unasked
    kind = KIND if graph.facts.states is None else f"{KIND} of hybrids"
    known = known_outcomes(kind, file, stored, threads, kernels)
    timed = (middle or (large and may_pad)) and not asked
    most = MOST_COST_OF_LARGE if large else MOST_COST

    def cost(padding: Padding) -> float:
        found = _cost(graph, padding)
        if found > most:
            _log.warning(
                "%s: drafts may change its text at near-ties; --batch-invariant rules that out, and"
                " a token takes %.2f times as long",
                file,
                found,
            )
        return found

    search = partial(_find_padding, graph, paddings)
    padding = known_padding(known, paddings, search, cost if timed else None, most)
    return require(padding, file) if batch_invariant else padding


def _find_padding(graph: Graph, paddings: Sequence[Padding]) -> Padding | None:
    if graph.facts.max_context < PROBE_SLOTS:
        return None

    paddings = [padding for padding in paddings if graph.own_rows or padding.attention is None]
    cache = graph.new_cache(PROBE_SLOTS)
    passes = Passes(graph, cache)

    def run(padding: Padding, tokens: Sequence[int], past: int) -> Rows:
        count = len(tokens)
        rows = padding.rows(count, past)
        if cache.recent is not None:
            if not past:
                cache.recent.clear()
            cache.recent.real, cache.recent.held_from = count, PROBE.prompt if past else None
        passes.run(padding.pad(tokens, past), past, head=True, rows=rows)
        return passes.logits[:count].copy(), cache.written(past, count)

    try:
        return find_padding(run, graph.facts.vocab_size, paddings, *_probes(graph.facts))
    finally:
        passes.close()
        cache.close()


def _probes(facts: GraphFacts) -> tuple[Probe, ...]:
    """Return what shows what the attention of a few layers does otherwise, if that is not usual."""
    if facts.states is None:
        return ()
    numbers = len(facts.attending) * facts.kv_heads * facts.head_dim
    return (replace(PROBE, texts=min(max(_SHOWN // numbers, 1), _MOST_TEXTS)),)


def _cost(graph: Graph, padding: Padding) -> float:
    """Return how many times as long a lone row takes with a padding, behind a text of usual length.

    In processor time, which other programs disturb least, and the least of several. The text is
    any: a large model would read a real one for seconds.
    """
    if padding == NO_PADDING:
        return 1.0
    past = max(min(USUAL_CONTEXT, graph.facts.max_context) - 1 - padding.slack, 1)
    cache = graph.new_cache(past + 1 + padding.slack)
    passes = Passes(graph, cache)
    least = {NO_PADDING: inf, padding: inf}
    try:
        for held in cache.groups:
            held[...] = 0  # memory that was never written takes no time to read
        if cache.recent is not None:
            cache.recent.go(None, past)
            cache.recent.real, cache.recent.held_from = 1, past
        end = process_time() + _COST_S
        for turn in range(_COST_TURNS):
            if turn >= _LEAST_COST_TURNS and process_time() > end:
                break
            for way in least:
                begun = process_time()
                passes.run(way.pad([0], past), past, head=True, rows=way.rows(1, past))
                least[way] = min(least[way], process_time() - begun)
    finally:
        passes.close()
        cache.close()
    return least[padding] / least[NO_PADDING]


def cache_holds(graph: Graph) -> bool:
    """Return whether tokens read one by one give the same logits as in one pass."""
    slots = min(PROBE_SLOTS, graph.facts.max_context)
    tokens = probe_tokens(graph.facts.vocab_size, slots)
    cache = graph.new_cache(slots)
    passes = Passes(graph, cache)
    try:
        passes.run(tokens, 0, head=True)
        together = passes.logits[: len(tokens)].copy()
        apart = np.empty_like(together)
        if cache.recent is not None:
            cache.recent.clear()
        for at, token in enumerate(tokens):
            passes.run([token], at, head=True)
            apart[at] = passes.logits[0]
    finally:
        passes.close()
        cache.close()
    return agree(together, apart)
