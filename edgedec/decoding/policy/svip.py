"""SVIP: stop drafting where the draft model is unsure (2411.18462)."""

from __future__ import annotations

import math

from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord

_WEIGHT = 0.15
_THRESHOLD = 0.3
_CAP = 40


class Svip:
    """Policy that stops after a token drawn from a distribution with sqrt(0.15 H) > 0.3, H in nats.

    The token itself is kept, as in the authors' code: at the bound (H = 0.6 nats) the draft
    is right more often than not. Made for chains.

    Args:
        threshold: the bound on sqrt(0.15 H).
        cap: most drafted tokens.

    """

    name = "svip"
    lone_row_s: float | None = None
    slowdown: float | None = None

    def __init__(self, threshold: float = _THRESHOLD, cap: int = _CAP) -> None:
        self._entropy_bound = threshold**2 / _WEIGHT
        self._limits = DraftLimits(cap, cap)
        self._last_entropy = -math.inf

    def begin(self, remaining: int) -> None:
        self._last_entropy = -math.inf

    def limits(self) -> DraftLimits:
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        if step.behind:
            return True
        if step.nodes > 0 and self._last_entropy > self._entropy_bound:
            return False
        self._last_entropy = step.offer.entropy()
        return True

    def observe(self, record: RoundRecord) -> None:
        pass
