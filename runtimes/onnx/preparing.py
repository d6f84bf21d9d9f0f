"""Packs a graph's weights for this machine, and compares its results before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.tree import FloatArray
from edgedec.errors import RuntimeUnavailable
from edgedec.records.adapter import Prepared
from edgedec.runtimes._ort import packed
from edgedec.runtimes._ort.opening import default_threads, model_file, open_inference
from edgedec.runtimes.onnx.graph import Graph, GraphFacts
from edgedec.runtimes.onnx.model import MODEL_FILE
from edgedec.runtimes.onnx.padding import PROBE_SLOTS
from edgedec.runtimes.onnx.passes import Passes

# Widths of the passes to compare, since kernels depend on the number of rows.
_PASSES = (11, 1, 4, 9)


def prepare(path: Path) -> Prepared:
    """See ``edgedec.runtimes.registry.Adapter``."""
    file = model_file(path, MODEL_FILE)
    return packed.prepare(file, lambda folder: _compare(file, folder))


def _compare(file: Path, folder: Path) -> None:
    """Refuse a packed graph whose logits are not bitwise equal to the original's.

    Raises:
        RuntimeUnavailable: they differ.
        SessionFailed: ONNX Runtime refuses the packed graph.

    """
    stored = read_model_file(file)
    facts = GraphFacts.parse(stored.metadata, str(file))
    threads = default_threads(stored.weight_bytes)
    # One after the other, so that not both are in memory.
    expected = _logits(open_inference(file, stored, threads), facts, str(file))
    if not np.array_equal(_logits(packed.open_packed(folder, threads), facts, str(file)), expected):
        raise RuntimeUnavailable(
            f"{file}: packed weights would change its logits: it loads as before"
        )


def _logits(inference: ort.InferenceSession, facts: GraphFacts, where: str) -> FloatArray:
    graph = Graph.of(inference, facts, where)
    cache = graph.new_cache(min(PROBE_SLOTS, facts.max_context))
    passes = Passes(graph, cache)
    rng = np.random.default_rng(0)
    rows, past = [], 0
    try:
        for count in _PASSES:
            if past + count > min(PROBE_SLOTS, facts.max_context):
                break
            tokens = [int(token) for token in rng.integers(0, facts.vocab_size, count)]
            passes.run(tokens, past, head=True)
            rows.append(passes.logits[:count].copy())
            past += count
        return np.concatenate(rows)
    finally:
        passes.close()
        cache.close()
