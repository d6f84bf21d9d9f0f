"""One session's passes on OpenVINO over a cache that the graph only reads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from edgedec.decoding.session_base import check_interrupt
from edgedec.decoding.tree import FloatArray, IntArray
from edgedec.hardware.resident import release_free
from edgedec.runtimes.onnx.openvino.cache import BLOCK, GrowingCache
from edgedec.runtimes.onnx.openvino.opening import OUTPUTS, OpenVinoGraph, reason
from edgedec.runtimes.onnx.passes import GraphPasses

_HIDDEN = np.float32(-np.inf)
# Rows of a pass, including padding. OpenVINO compiles its products for each new number of rows,
# which takes as long as half a pass; up to eight rows a further one costs almost nothing. A product
# with a single key sums in another order than others.
WIDTHS = (2, 4, 6, 8, 10, 12, 14, 17, 24, 32, 48, 64)


class Cancel:
    """Cancels a request's pass, with the methods of an event."""

    def __init__(self, request: ov.InferRequest) -> None:
        self._request = request
        self._asked = threading.Event()

    def set(self) -> None:
        """Stop the running pass, or the next one."""
        self._asked.set()
        self._request.cancel()

    def clear(self) -> None:
        """Let passes run again."""
        self._asked.clear()

    def is_set(self) -> bool:
        """Return whether a stop is requested."""
        return self._asked.is_set()


class OpenVinoPasses(GraphPasses):
    """Runs passes, and copies the keys and values that they return into the cache."""

    def __init__(self, graph: OpenVinoGraph, cache: GrowingCache) -> None:
        self._request = graph.inference.create_infer_request()
        super().__init__(Cancel(self._request), "OpenVINO")
        self._graph, self._cache = graph, cache
        self._given: npt.NDArray[Any] | None = None

    def _locked_run(
        self,
        tokens: Sequence[int],
        past: int,
        head: bool,
        positions: Sequence[int] | None,
        mask: tuple[int, FloatArray] | None,
        rows: int,
    ) -> None:
        count = len(tokens)
        self._cache.fit(past + count)
        self._give_cache()
        for name, values in self._inputs(tokens, positions, past, head, mask).items():
            self._request.set_tensor(name, ov.Tensor(values))
        self._attempt(self._request.infer)
        check_interrupt(self.stop)  # one that came too late to cancel this pass
        self._keep(self._request.get_tensor("written").data[:, :, :count], past)
        if head:
            found = (self._request.get_tensor(name).data[:count] for name in OUTPUTS)
            self.logits, top_logits, top_ids = found
            self.top_logits, self.top_ids = ranked(top_logits, top_ids)
        if self.shows_states:
            taps = self._graph.facts.taps
            self.states = [self._request.get_tensor(name).data[0, :count] for name in taps]

    def trim(self) -> None:
        """See ``GraphPasses``; nothing is released while another session of the model computes.

        Results stay as they are, since they are in memory of their own.
        """
        release(self._graph)

    def _reason(self, error: Exception) -> str:
        return reason(error)

    def _release(self) -> None:
        self._given = None
        del self._request, self._graph, self._cache

    def _give_cache(self) -> None:
        """Bind the cache's tensors as inputs, again only when the cache has moved."""
        cache = self._cache.rows
        if cache is self._given:
            return
        for entry, name in enumerate(self._graph.cache_names):
            self._request.set_tensor(name, ov.Tensor(cache[entry][None], shared_memory=True))
        self._given = cache

    def _keep(self, written: npt.NDArray[Any], past: int) -> None:
        """Copy the keys and values that a pass returned into the cache."""
        self._cache.put(written, past)

    def _inputs(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None,
        past: int,
        head: bool,
        mask: tuple[int, FloatArray] | None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Return a pass's other inputs; rows beyond ``tokens`` repeat the last one."""
        count, slots = len(tokens), self._cache.rows.shape[2]
        width = padded(count)
        index = np.arange(width)
        real = np.minimum(index, count - 1)
        places = past + real
        where = places if positions is None else np.array(positions)[real]
        # At least two, so that one compilation per width serves all positions.
        block = min(past // BLOCK, slots // BLOCK - 2)
        blocks = np.arange(block, max(block + 2, -(-(past + count) // BLOCK)))
        feeds: dict[str, npt.NDArray[Any]] = {
            "input_ids": np.array(tokens, np.int64)[real][None],
            "position_ids": where[None],
            "attention_bias": self._seen(count, past, slots, mask)[real][None, None],
            "rows": index if head else index[:0],
            "places": places.astype(np.int32),
            "blocks": blocks.astype(np.int32),
        }
        if "slots" in self._graph.inputs:
            feeds["slots"] = np.arange(slots)
            feeds["slots"][places] = where
        if "attention_rows" in self._graph.inputs:
            feeds["attention_rows"] = feeds["computed_rows"] = index
        return feeds

    def _seen(
        self, count: int, past: int, slots: int, mask: tuple[int, FloatArray] | None
    ) -> FloatArray:
        """Return the attention bias, ``[count, slots]``."""
        bias = np.zeros((count, slots), np.float32)
        bias[:, past:] = _HIDDEN
        if mask is None:
            bias[:, past : past + count][np.tril_indices(count)] = 0
        else:
            first, values = mask
            bias[:, first : past + count] = values
        return bias


def release(graph: OpenVinoGraph) -> None:
    """Give the memory of the widest pass so far, which all layers keep, back to the system.

    It takes some milliseconds, and is allocated again when needed, which takes less.
    """
    with contextlib.suppress(RuntimeError):  # a pass is running
        graph.inference.release_memory()
    release_free()


def padded(count: int) -> int:
    """Return the rows of a pass over ``count`` tokens, including padding."""
    return next((width for width in WIDTHS if width >= count), count)


def ranked(logits: FloatArray, ids: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the largest logits and their ids, with equal logits ordered by id."""
    if (logits[:, 1:] < logits[:, :-1]).all():
        return logits, ids
    order = np.lexsort((ids, -logits), axis=-1)
    return np.take_along_axis(logits, order, -1), np.take_along_axis(ids, order, -1)
