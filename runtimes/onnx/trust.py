"""Checks that a provider updates this graph's cache in place and at the right rows.

The CPU's kernels do. Another provider's may return keys and values in another order, or lose
earlier ones: the text would be nonsense without any error.
"""

from __future__ import annotations

import numpy as np

from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.padding import PROBE_SLOTS
from edgedec.runtimes.onnx.passes import Passes

_TOKENS = 6
# Difference of two rows' logits relative to their spread: half-precision kernels err by a hundredth
# or two, another row's logits by more than one.
_TOLERANCE = 0.25


def cache_holds(graph: Graph) -> bool:
    """Return whether tokens read one by one give the same logits as in one pass."""
    slots = min(PROBE_SLOTS, graph.facts.max_context)
    tokens = [(7 * n + 3) % graph.facts.vocab_size for n in range(min(_TOKENS, slots))]
    cache = graph.new_cache(slots)
    passes = Passes(graph, cache)
    try:
        passes.run(tokens, 0, head=True)
        together = passes.logits[: len(tokens)].copy()
        apart = np.empty_like(together)
        for at, token in enumerate(tokens):
            passes.run([token], at, head=True)
            apart[at] = passes.logits[0]
    finally:
        passes.close()
        cache.close()
    spread = together - together.mean(axis=1, keepdims=True)
    wrong = np.linalg.norm(apart - together, axis=1)
    return bool(np.all(wrong <= _TOLERANCE * np.linalg.norm(spread, axis=1)))
