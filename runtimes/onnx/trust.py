"""Whether a provider keeps this graph's cache as it must: in place, rows where they were put.

The CPU's kernels do. Another provider's may return keys and values in an order of their own,
or lose what came before: the text would be nonsense and nothing would say so.
"""

from __future__ import annotations

import numpy as np

from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.padding import PROBE_SLOTS
from edgedec.runtimes.onnx.passes import Passes

_TOKENS = 6
# Between logits of the same row, as a share of their spread: half-precision kernels err by a
# hundredth or two, another row's logits by more than one.
_TOLERANCE = 0.25


def cache_holds(graph: Graph) -> bool:
    """Whether tokens read one by one give what the same tokens give in one pass."""
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
