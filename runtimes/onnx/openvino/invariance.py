"""Tests whether a row's bits on OpenVINO depend on the other rows of its pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedec.bundle.onnx_file import ModelFile
from edgedec.runtimes.onnx.known import known_outcomes
from edgedec.runtimes.onnx.openvino.cache import STEP
from edgedec.runtimes.onnx.openvino.opening import LEAST_ROWS, OpenVinoGraph
from edgedec.runtimes.onnx.openvino.passes import OpenVinoPasses
from edgedec.runtimes.onnx.openvino.places import version
from edgedec.runtimes.onnx.padding import (
    KIND,
    NO_PADDING,
    Padding,
    Probe,
    Rows,
    find_padding,
    known_padding,
    require,
)

# Parts of all widths that rounds have, before and after the slot where the cache grows.
PROBE = Probe(STEP - 6, 24, ((23, 1), (22, 1), (20, 3), (16, 6), (14, 8), (12, 10), (11, 12),
                             (10, 14), (7, 17), (6, 1), (5, 1), (4, 2), (0, 1), (0, 4),
                             (0, 17)))  # fmt: skip


def padding_of(
    file: Path, stored: ModelFile, graph: OpenVinoGraph, threads: int, batch_invariant: bool | None
) -> Padding | None:
    """Return a padding if rows are independent of each other without any, else None.

    Args:
        file, stored: the graph's, and what ``read_model_file`` found in it.
        graph: compiled.
        threads: for one pass.
        batch_invariant: None tests it, True requires it.

    Raises:
        RuntimeUnavailable: it is required, and rows depend on each other.

    """
    if batch_invariant is False:
        return None
    known = known_outcomes(KIND, file, stored, threads, version())
    padding = known_padding(known, (NO_PADDING,), lambda: _search(graph))
    return require(padding, file) if batch_invariant else padding


def _search(graph: OpenVinoGraph) -> Padding | None:
    room = graph.facts.max_context - PROBE.text
    if room < 1:
        return None
    probe = dataclasses.replace(PROBE, prompt=min(PROBE.prompt, room))
    cache = graph.new_cache(STEP)
    passes = OpenVinoPasses(graph, cache)

    def run(_: Padding, tokens: Sequence[int], past: int) -> Rows:
        count = len(tokens)
        if past == 0:  # the prompt, of which nothing is compared
            for at in range(0, count, LEAST_ROWS):
                passes.run(tokens[at : at + LEAST_ROWS], at, head=False)
            return np.zeros((count, 0), np.float32), np.zeros((count, 0))
        # With as many slots as a text of this length has.
        cache.trim(past)
        passes.run(tokens, past, head=True)
        written = cache.rows[:, :, past : past + count]
        return passes.logits[:count].copy(), np.moveaxis(written, 2, 0).copy()

    try:
        return find_padding(run, graph.facts.vocab_size, (NO_PADDING,), probe)
    finally:
        passes.close()
        cache.close()
