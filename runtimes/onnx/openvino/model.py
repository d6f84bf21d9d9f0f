"""Weights on OpenVINO, loaded once and shared by all sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedec.bundle.onnx_file import ModelFile, read_model_file
from edgedec.decoding.session import OnChunk
from edgedec.decoding.tree import FloatArray
from edgedec.hardware.resident import drop_pages
from edgedec.runtimes._ort.opening import default_threads, model_file
from edgedec.runtimes._ort.saved import known_outcomes, locations
from edgedec.runtimes.onnx.graph import GraphFacts
from edgedec.runtimes.onnx.model import MODEL_FILE, OnnxModel
from edgedec.runtimes.onnx.openvino.cache import STEP
from edgedec.runtimes.onnx.openvino.opening import LEAST_ROWS, WIDEST, OpenVinoGraph, open_graph
from edgedec.runtimes.onnx.openvino.passes import WIDTHS, OpenVinoPasses, release
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
from edgedec.runtimes.onnx.session import OnnxSession

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
        return passes.logits[:count].copy(), cache.written(past, count)

    try:
        return find_padding(run, graph.facts.vocab_size, (NO_PADDING,), probe)
    finally:
        passes.close()
        cache.close()


# Passes compiled at load: the widths of rounds, with a cache of the first and of the second size.
_FIRST_PASTS = (0, STEP)
_FIRST_WIDTHS = tuple(width for width in WIDTHS if width <= 17)


class OpenVinoSession(OnnxSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``OpenVinoModel.open``."""

    passes = OpenVinoPasses
    _model: OpenVinoModel
    prefill_chunk = WIDEST

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        shows = self._passes.shows_states = self._on_states is not None
        for chunk in self._chunks(tokens, on_chunk):
            self._parts, start = [], 0
            while start < len(chunk):
                past = self._length + start
                rows = self._rows_at(past)
                part = chunk[start : start + rows]
                self._run(part, past, head=False)
                if shows:
                    self._parts.append(self._states(len(part)))
                start += rows
        if len(tokens) > _FIRST_WIDTHS[-1]:  # wider passes than rounds have
            self._passes.trim()

    def _prefilled(self, count: int) -> FloatArray:
        return np.concatenate(self._parts)

    def _rows_at(self, past: int) -> int:
        return self._model.graph.rows_at(past)


class OpenVinoModel(OnnxModel):
    """A model on OpenVINO; made by ``OpenVinoModel.compile``."""

    session = OpenVinoSession

    @property
    def graph(self) -> OpenVinoGraph:
        """See ``OrtModel``."""
        found = super().graph
        assert isinstance(found, OpenVinoGraph)
        return found

    @classmethod
    def compile(
        cls, path: Path | str, *, threads: int | None = None, batch_invariant: bool | None = None
    ) -> OpenVinoModel:
        """Load a graph that ``edgedec export`` wrote.

        Args:
            path: ``model.onnx``, or its folder.
            threads: for one pass; see ``OnnxModel.load``.
            batch_invariant: whether a row's bits may not depend on how many rows are computed
                with it, for chains. It takes no padding here: None claims it where a test finds
                it, True requires it; with False it is not tested, and trees are verified.

        Raises:
            BundleError: the file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: OpenVINO cannot run it, or batch invariance was asked for and the
                test does not find it.

        """
        file = model_file(path, MODEL_FILE)
        stored = read_model_file(file)
        facts = GraphFacts.parse(stored.metadata, str(file))
        facts.check_attends(str(file), "OpenVINO")
        threads = threads or default_threads(stored.weight_bytes)
        graph = open_graph(file, stored, facts, threads)
        padding = padding_of(file, stored, graph, threads, batch_invariant)
        model = cls(file, graph, stored.weight_bytes, padding, threads)
        model._count_memory()
        model._compile_widths()
        model._release([file.parent / name for name in locations(stored)])
        return model

    def _release(self, files: Sequence[Path]) -> None:
        """Give back memory that only loading needed.

        The weights in these files were packed in the first pass and are not read again.
        """
        for file in files:
            drop_pages(file)
        release(self.graph)

    def _count_memory(self) -> None:
        """Include in the facts a cache's copy while it grows, and the scores of long contexts."""
        scratch = self.info.kv_bytes_per_token + LEAST_ROWS * self.graph.score_bytes
        self.info = dataclasses.replace(self.info, scratch_bytes_per_token=scratch)

    def _compile_widths(self) -> None:
        """Let OpenVINO compile the widths of rounds, which would slow down the first request."""
        cache = self.graph.new_cache(self.info.max_context)
        passes = OpenVinoPasses(self.graph, cache)
        for past in _FIRST_PASTS:
            for width in _FIRST_WIDTHS:
                if past + width <= self.info.max_context:
                    passes.run([0] * width, past, head=True)
        passes.close()
        cache.close()
