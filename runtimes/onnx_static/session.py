"""One sequence over graphs of static shape, whose tokens stand anywhere in the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.runtimes._static.executor import Array
from edgedec.runtimes._static.session import FreeSlots
from edgedec.runtimes.onnx_static.executor import SLOTS


class StaticSession(FreeSlots):
    """Implements ``edgedec.decoding.session.Session``; made by ``StaticModel.open``.

    A graph reads the cache as it was before the pass, and its own rows separately.
    """

    runtime = "onnx-static"

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        return {SLOTS: np.array(slots, np.int64)}

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        """Return what is added to scores, ``[1, width, slots + width]``."""
        own = np.zeros((len(slots), width), np.bool_)
        own[:, : len(slots)] = mask[:, slots]
        before = mask.copy()
        before[:, slots] = False
        return super()._bias(np.concatenate([before, own], axis=1), slots, width)
