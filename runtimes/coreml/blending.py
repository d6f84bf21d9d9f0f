"""The blend form: tokens stand anywhere in the cache, and only the host knows where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.coreml.types import Array
from edgedec.runtimes.coreml.session import CoremlSession


class BlendSession(CoremlSession):
    """A commit moves nothing: slots of dropped nodes are free for the next ones."""

    def _place(self, count: int) -> list[int]:
        taken = self._held >= 0
        taken[self._places] = True
        found: list[int] = np.flatnonzero(~taken)[:count].tolist()
        return found

    def _room(self) -> int:
        return self._facts.slots  # rows of padding are written nowhere

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        place = np.zeros((1, width, self._facts.slots), np.float32)
        place[0, np.arange(len(slots)), slots] = 1
        keep = np.float32(1) - place.sum(axis=1)
        return {"place": place, "keep": keep[..., None]}

    def _gather(self, path: Sequence[int]) -> list[int]:
        return [self._places[node] for node in path]
