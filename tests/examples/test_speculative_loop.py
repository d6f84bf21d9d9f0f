"""The loop of ``examples/speculative_loop.py`` leaves the target's distribution as it is."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kinds import in_full

from edgedec.decoding.tree import FloatArray
from edgedec.testing import FakeModel

WORDS, TEMPERATURE, RUNS = 4, 1.2, 3000
# Of chi-square per degree of freedom, of which there are 15: chance passes it once in 20,000.
MOST = 3


class Cached(FakeModel):
    """Computes each row of logits once."""

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        return self._once(tuple(tokens))

    @functools.cache  # noqa: B019
    def _once(self, tokens: tuple[int, ...]) -> FloatArray:
        return super().logits(tokens)


TARGET = Cached(WORDS, seed=1, sharpness=1.0)
DRAFT = Cached(WORDS, seed=2, sharpness=1.0, like=(TARGET, 0.5))
PROMPT = [1, 2]
# Without the residual a rejected token can come again; without the rejection q takes p's place.
BREAKS = {
    "no residual": ("np.maximum(p[accepted] - q[accepted], 0)", "p[accepted]"),
    "no rejection": (">= p[accepted][token]", "> 1"),
}


def loop(repository: Path, change: tuple[str, str] = ("", "")) -> Any:
    """The example, with a change."""
    source = (repository / "examples" / "speculative_loop.py").read_text("utf-8")
    old, new = change
    assert old in source
    names: dict[str, Any] = {"__name__": "speculative_loop"}
    exec(compile(source.replace(old, new) if old else source, "speculative_loop.py", "exec"), names)
    return SimpleNamespace(**names)


def chi_square(example: Any, length: int) -> float:
    """How far the first two tokens of many runs are from the target's, per degree of freedom."""
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(RUNS):
        text = list(PROMPT)
        sessions = TARGET.open(16), DRAFT.open(16)
        rounds = example.speculate(*sessions, text, length, TEMPERATURE, seed)
        while len(text) < len(PROMPT) + 2:
            next(rounds)
        found[tuple(text[2:4])] += 1

    def p(text: list[int]) -> np.ndarray:
        weights = np.exp(TARGET.logits(text) / TEMPERATURE)
        return weights / weights.sum()

    total = 0.0
    for one, two in itertools.product(range(WORDS), repeat=2):
        expected = RUNS * p(PROMPT)[one] * p([*PROMPT, one])[two]
        total += (found[one, two] - expected) ** 2 / expected
    return total / (WORDS**2 - 1)


@pytest.mark.parametrize("length", in_full([3, 1]))
def test_the_distribution_is_the_targets(repository: Path, length: int) -> None:
    assert chi_square(loop(repository), length) < MOST


@pytest.mark.parametrize("kind", in_full(BREAKS))
def test_a_broken_loop_is_noticed(repository: Path, kind: str) -> None:
    assert chi_square(loop(repository, BREAKS[kind]), 3) > 2 * MOST


@pytest.mark.parametrize("length", [1, 2, 5])
def test_at_temperature_0_the_text_is_the_targets(repository: Path, length: int) -> None:
    text = list(PROMPT)
    rounds = loop(repository).speculate(TARGET.open(64), DRAFT.open(64), text, length, 0.0, 1)
    accepted = [next(rounds)[0] for _ in range(8)]
    assert 0 < sum(accepted) < 8 * length
    for at in range(len(PROMPT), len(text)):
        assert text[at] == int(TARGET.logits(text[:at]).argmax())
