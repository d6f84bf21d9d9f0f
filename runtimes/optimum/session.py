"""One sequence on a graph that returns its cache.

The cache holds the committed tokens, then the pending ones, then dropped ones, which the next
pass leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes._ort.session import OrtModel, OrtSession
from edgedec.runtimes.optimum.graph import PastGraph
from edgedec.runtimes.optimum.passes import PastPasses


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
