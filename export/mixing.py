"""Finds the bytes that a decoder needs to stay close to its source: int4, and int8 where it pays.

Matrices are raised from int4 to int8 in the order of what they lose in int4 per byte that int8
takes more; every further byte is read by every pass, so loss per byte is also loss per time. How
many are raised is measured: graphs are written and compared with the source on held-out texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.export.sensitivity import Unit

# Writes a graph with these matrices in int8 and returns its divergence, in nats per token.
Measure = Callable[[frozenset[str]], float]

# Graphs that are written and compared at most, apart from the first.
TRIES = 5
# Of the largest divergence that is allowed: what a first guess aims at, and what is close enough
# to it not to look for a smaller model.
_AIM, _NEAR = 0.92, 0.8


@dataclass(frozen=True, slots=True)
class Mixture:
    """A choice of matrices in int8.

    Attributes:
        raised: their names.
        share: of the weights that are in int8.
        kl_nats: divergence of the model on held-out texts.

    """

    raised: frozenset[str]
    share: float
    kl_nats: float


class Mixing:
    """Finds the fewest matrices in int8 with which a model is close enough.

    Args:
        units: what may be raised.
        measure: see ``Measure``.
        most: the largest divergence that is close enough, in nats per token.

    """

    def __init__(self, units: Sequence[Unit], measure: Measure, most: float) -> None:
        self._units = sorted(units, key=lambda unit: unit.loss / unit.numbers, reverse=True)
        self._measure, self._most = measure, most
        losses = [max(unit.loss, 0.0) for unit in self._units]
        # Of the units that stay in int4 when the first k are raised.
        self._left = np.append(np.cumsum(losses[::-1])[::-1], 0.0)
        self._known: dict[int, float] = {}

    def best(self, plain: float) -> Mixture:
        """Return the choice with the fewest bytes of those that are measured and close enough.

        All matrices are raised if nothing less is close enough.

        Args:
            plain: divergence without any in int8.

        """
        self._known[0] = plain
        for _ in range(TRIES):
            guess = self._guess()
            if guess is None or guess in self._known:
                break
            self._known[guess] = self._measure(self._names(guess))
        enough = [k for k, kl in self._known.items() if kl <= self._most]
        chosen = min(enough, default=len(self._units))
        if chosen not in self._known:
            self._known[chosen] = self._measure(self._names(chosen))
        numbers = [unit.numbers for unit in self._units]
        share = sum(numbers[:chosen]) / max(sum(numbers), 1)
        return Mixture(self._names(chosen), share, self._known[chosen])

    def _guess(self) -> int | None:
        """Return how many to raise next; None if what is known is good enough."""
        enough = [k for k, kl in self._known.items() if kl <= self._most]
        below = max((k for k, kl in self._known.items() if kl > self._most), default=-1)
        top = min(enough, default=len(self._units))
        if top - below <= 1 and enough:
            return None
        if enough and self._known[top] >= _NEAR * self._most:
            return None
        # By the nearest one that is known, losses are this many times those of the units.
        near = max(below, 0) if not enough else top
        scale = self._known[near] / max(self._left[near], 1e-30)
        wanted = self._left * scale <= _AIM * self._most
        guess = int(wanted.argmax()) if wanted.any() else len(self._units)
        return int(np.clip(guess, below + 1, max(top - 1, below + 1) if enough else top))

    def _names(self, count: int) -> frozenset[str]:
        return frozenset(name for unit in self._units[:count] for name in unit.names)
