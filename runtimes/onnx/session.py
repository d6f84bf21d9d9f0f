"""One sequence on ONNX Runtime.

Slots 0..length of the cache are committed; a pending tree's nodes follow in their own order, so an
accepted chain is already in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes._ort.session import OrtModel, OrtSession
from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.padding import Padding
from edgedec.runtimes.onnx.passes import GraphPasses, Passes


class OnnxSession(OrtSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``OnnxModel.open``.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.
        padding: rule for the number of rows of a pass; padding rows repeat the last token and are
            never attended to.

    """

    runtime = "onnx"
    passes: Callable[[Any, Any], GraphPasses] = Passes

    def __init__(self, model: OrtModel[Graph], capacity: int, padding: Padding) -> None:
        self._model = model
        self._padding = padding
        # A padded pass writes slots after the last node.
        self._cache = model.graph.new_cache(capacity + padding.slack)
        self._pads = padding.slack > 0
        self._passes = self.passes(model.graph, self._cache)
        super().__init__(model, capacity, self._passes)
        self._mask: FloatArray = np.zeros((0, 0), np.float32)
        self._masked = 0

    # -- prefill --------------------------------------------------------------------------------

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        self._passes.shows_states = self._on_states is not None
        for chunk in self._chunks(tokens, on_chunk):
            self._run(chunk, self._length, head=False)

    def _prefilled(self, count: int) -> FloatArray:
        return self._states(count)

    def _rows_at(self, past: int) -> int:
        """Return the rows of a prefill pass after ``past`` tokens."""
        return self.prefill_chunk

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        passes, count = self._passes, len(tree)
        passes.shows_states = bool(want & Want.STATES)
        if start == 0:
            self._masked = 0
            if self._length == 0 and count > 1:
                return self._first(tree, want)
        if tree.is_chain:
            self._run(tree.tokens[start:], self._length + start)
        else:
            self._branches(tree, start)
        rows = count - start
        logits = passes.logits[:rows] if want & Want.LOGITS else None
        states = self._states(rows) if want & Want.STATES else None
        return Pass(start, passes.top_ids[:rows], passes.top_logits[:rows], logits, states)

    def _first(self, tree: TokenTree, want: Want) -> Pass:
        """Compute the root alone: with an empty cache the kernel reads the first position only."""
        self._run(tree.tokens[:1], 0)
        root = [a[:1].copy() for a in self._outputs()]
        # The cache now contains the root, as after any other pass, but it is not committed.
        self._branches(tree, 1)
        rest = [a[: len(tree) - 1] for a in self._outputs()]
        ids, top, logits, *states = (np.concatenate(both) for both in zip(root, rest, strict=True))
        shown = np.concatenate(states, axis=1) if states else None
        return Pass(0, ids, top, logits if want & Want.LOGITS else None, shown)

    def _branches(self, tree: TokenTree, start: int) -> None:
        """Run a pass whose rows attend to their own ancestors only."""
        length = self._length
        self._run(
            tree.tokens[start:],
            length + start,
            positions=[length + depth for depth in tree.depths[start:]],
            mask=(length, self._ancestors(tree, start)),
        )

    def _run(
        self,
        tokens: Sequence[int],
        past: int,
        *,
        head: bool = True,
        positions: Sequence[int] | None = None,
        mask: tuple[int, FloatArray] | None = None,
    ) -> None:
        """Run a padded pass; padding rows come last, at the last position."""
        rows = 0
        if self._pads:
            rows, count = self._padding.rows(len(tokens), past), len(tokens)
            tokens = self._padding.pad(tokens, past)
            if positions is not None:
                positions = [*positions, *[positions[-1]] * (len(tokens) - count)]
        self._passes.run(tokens, past, head=head, positions=positions, mask=mask, rows=rows)

    def _ancestors(self, tree: TokenTree, start: int) -> FloatArray:
        """Return 0 for ancestors and the node itself, -inf elsewhere: ``[count - start, count]``.

        Rows are kept while the tree is pending, so growing it costs only its new nodes.
        """
        count = len(tree)
        self._masked = min(self._masked, start)  # a failed pass may have left more
        if count > len(self._mask):
            self._mask = np.full((2 * count, 2 * count), -np.inf, np.float32)
            self._masked = 0
        mask = self._mask
        for node in range(self._masked, count):
            parent = tree.parents[node]
            mask[node, :node] = mask[parent, :node] if node else 0
            mask[node, node] = 0
        self._masked = count
        return mask[start:count, :count]

    # -- committing and going back --------------------------------------------------------------

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        if not tree.is_chain:
            self._cache.move([self._length + node for node in path], self._length)

    def rehearse(self, length: int, rows: int) -> None:
        """See ``Rehearsing``: earlier slots are read as zeros, which take no memory."""
        self.rollback(0)
        vocab_size = self._vocab_size
        read = min(self._rows_at(length), length - rows)
        # Many different tokens, since rows of mapped embeddings are read on first use.
        tokens = [token * vocab_size // (read + rows) for token in range(read + rows)]
        self._place(length - rows - read)
        self._run(tokens[:read], length - rows - read, head=False)
        self._run(tokens[read:], length - rows)
        self._cache.trim(0)
        self._place(0)

    def _place(self, at: int) -> None:
        """Go on from a slot, before which nothing was computed."""

    def trim(self) -> None:
        """See ``Trimmable``: releases slots after the committed ones, and wide buffers."""
        self._cache.trim(self._length)
        self._passes.trim()
        self._mask, self._masked = np.zeros((0, 0), np.float32), 0

    def _copy(self, length: int) -> OnnxSession:
        other = type(self)(self._model, self.capacity, self._padding)
        other._cache.copy_from(self._cache, length)
        return other

    def _held(self) -> list[Rows]:
        return self._cache.groups

    def _load_rows(self, rows: Sequence[Rows], length: int) -> None:
        self._cache.load(rows)

    def _free_cache(self) -> None:
        self._cache.close()

    # -- helpers --------------------------------------------------------------------------------

    def lend(self, layer: int) -> tuple[FloatArray, FloatArray]:
        caches, groups = self._model.graph.caches, self._cache.groups
        if f"key_{layer}" not in caches:
            return (np.zeros((0, 0, 0), np.float32),) * 2
        key, value = caches[f"key_{layer}"], caches[f"value_{layer}"]
        return groups[key[0]][key[1]], groups[value[0]][value[1]]

    def _outputs(self) -> tuple[npt.NDArray[Any], ...]:
        passes = self._passes
        states = passes.states if passes.shows_states else ()
        return passes.top_ids, passes.top_logits, passes.logits, *states

    def _states(self, rows: int) -> FloatArray:
        """Return the residual streams of the first rows, ``[rows, taps * hidden]``."""
        return np.concatenate([each[:rows] for each in self._passes.states], axis=1)
