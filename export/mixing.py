"""Finds the bytes that a decoder needs to stay close to its source: int4, and int8 where it pays.

Matrices are raised from int4 to int8 in the order of what they lose in int4 per byte that int8
takes more; every further byte is read by every pass, so loss per byte is also loss per time. A
matrix that is a large part of the model, as a head of many tokens, is tried both ways, since behind
it in that order many others would be raised for next to nothing. How much is raised is measured:
graphs are written and compared with the source on held-out texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from edgedec.export.sensitivity import Unit

# Writes a graph with these matrices in int8 and returns its divergence, in nats per token.
Measure = Callable[[frozenset[str]], float]

# Graphs that are written and compared at most, apart from the first.
TRIES = 5
# Of the largest divergence that is allowed: what a first guess aims at, and what is close enough
# to it not to look for a smaller model.
_AIM, _NEAR = 0.92, 0.8
# Share of the weights from which on a unit is tried both ways.
_LARGE = 0.2


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
        self._measure, self._most = measure, most
        self._choices = _choices(units)
        self._left = np.array([choice.left for choice in self._choices])
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
            self._known[guess] = self._measure(self._choices[guess].names)
        last = len(self._choices) - 1
        enough = [k for k, kl in self._known.items() if kl <= self._most]
        chosen = min(enough, default=last)
        found = self._choices[chosen]
        if chosen not in self._known:
            self._known[chosen] = self._measure(found.names)
        share = found.numbers / max(self._choices[last].numbers, 1)
        return Mixture(found.names, share, self._known[chosen])

    def _guess(self) -> int | None:
        """Return how many to raise next; None if what is known is good enough."""
        enough = [k for k, kl in self._known.items() if kl <= self._most]
        below = max((k for k, kl in self._known.items() if kl > self._most), default=-1)
        last = len(self._choices) - 1
        top = min(enough, default=last)
        if top - below <= 1 and enough:
            return None
        if enough and self._known[top] >= _NEAR * self._most:
            return None
        # By the nearest one that is known, losses are this many times those of the units.
        near = max(below, 0) if not enough else top
        scale = self._known[near] / max(self._left[near], 1e-30)
        wanted = self._left * scale <= _AIM * self._most
        guess = int(wanted.argmax()) if wanted.any() else last
        return int(np.clip(guess, below + 1, max(top - 1, below + 1) if enough else top))


@dataclass(frozen=True, slots=True)
class _Choice:
    """Matrices in int8: their weights, and what the others lose."""

    numbers: int
    left: float
    names: frozenset[str]


def _choices(units: Sequence[Unit]) -> list[_Choice]:
    """Return choices by size, from none to all; each loses less than all the smaller ones."""
    found: list[_Choice] = []
    choices = sorted(_all_choices(units), key=lambda choice: (choice.numbers, choice.left))
    for choice in choices:
        if not found or choice.left < found[-1].left or choice is choices[-1]:
            found.append(choice)
    return found


def _all_choices(units: Sequence[Unit]) -> Iterator[_Choice]:
    """Yield the units of the highest loss per weight with and without each large one."""
    total = sum(unit.numbers for unit in units)
    large = [unit for unit in units if unit.numbers >= _LARGE * total]
    rest = [unit for unit in units if unit.numbers < _LARGE * total]
    rest.sort(key=lambda unit: unit.loss / unit.numbers, reverse=True)
    for count in range(len(large) + 1):
        for some in combinations(large, count):
            for end in range(len(rest) + 1):
                raised = [*some, *rest[:end]]
                numbers = sum(unit.numbers for unit in raised)
                kept = [unit for unit in units if unit not in raised]
                left = sum(max(unit.loss, 0.0) for unit in kept)
                yield _Choice(numbers, left, frozenset(n for unit in raised for n in unit.names))
