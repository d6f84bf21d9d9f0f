"""An executor that records its inputs and outputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from edgedec.coreml.types import Array
from edgedec.decoding.session_base import Stop
from edgedec.runtimes._static.executor import Feeds
from edgedec.runtimes.coreml.executor import CoremlExecutor

_CALLS, _SECONDS = 20, 0.5
_FEWEST = 3


class Watched:
    """Computes with another executor, and records the inputs and the order of the best tokens.

    Attributes:
        feeds: the last inputs of each function.
        unsorted, ties, ties_by_id: see ``records.DeviceCheck``.

    """

    def __init__(self, inner: CoremlExecutor) -> None:
        self._inner, self.value_bytes = inner, inner.value_bytes
        self.feeds: dict[str, Feeds] = {}
        self.unsorted = self.ties = self.ties_by_id = 0

    def load(self, function: str) -> None:
        self._inner.load(function)

    def new_state(self) -> Any:
        return self._inner.new_state()

    def stop_of(self, state: Any) -> Stop | None:
        return self._inner.stop_of(state)

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        self.feeds[function] = dict(feeds)
        found = dict(self._inner.predict(function, feeds, state, check))
        if "top_0" in found and "top_1" in found:
            self._note_order(found["top_0"], found["top_1"])
        return found

    def _note_order(self, logits: Array, ids: Array) -> None:
        self.unsorted += int((logits[:, 1:] > logits[:, :-1]).any(axis=1).sum())
        equal = logits[:, 1:] == logits[:, :-1]
        self.ties += int(equal.sum())
        self.ties_by_id += int((equal & (ids[:, 1:] > ids[:, :-1])).sum())

    def read(self, state: Any) -> Array:
        return self._inner.read(state)

    def write(self, state: Any, cache: Array) -> None:
        self._inner.write(state, cache)

    def release(self, state: Any) -> None:
        self._inner.release(state)

    def close(self) -> None:
        self._inner.close()

    def timed(self, function: str) -> tuple[float | None, int]:
        """Return the median seconds of a call with the last inputs, and the number of calls."""
        feeds = self.feeds.get(function)
        if feeds is None:
            return None, 0
        state, taken = self._inner.new_state(), list[float]()
        while len(taken) < _FEWEST or (len(taken) < _CALLS and sum(taken) < _SECONDS):
            begin = time.perf_counter()
            self._inner.predict(function, feeds, state, lambda: None)
            taken.append(time.perf_counter() - begin)
        return statistics.median(taken), len(taken)
