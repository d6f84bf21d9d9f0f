"""The blend form: tokens stand anywhere in the cache, and only the host knows where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.coreml.types import Array
from edgedec.runtimes._static.session import FreeSlots


class BlendSession(FreeSlots):
    """A mask over all slots says where a pass writes its rows."""

    runtime = "coreml"

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        place = np.zeros((1, width, self._facts.slots), np.float32)
        place[0, np.arange(len(slots)), slots] = 1
        keep = np.float32(1) - place.sum(axis=1)
        return {"place": place, "keep": keep[..., None]}
