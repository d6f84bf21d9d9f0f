"""The noise is uniform, and independent over tokens, positions, seeds and purposes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.certificate.enumerable import SUSPICIOUS, p_value
from edgedec.decoding.randomness import Purpose, Streams

pytestmark = pytest.mark.statistical

Floats = npt.NDArray[np.float64]
ROWS, TOKENS = 512, 512
Table = Callable[[], Floats]


def uniforms(rows: list[npt.NDArray[np.float32]]) -> Floats:
    """Gumbel noise mapped back to (0, 1), ``[rows, tokens]``."""
    uniform: Floats = np.exp(-np.exp(-np.stack(rows).astype(np.float64)))
    return uniform


def positions() -> Floats:
    streams = Streams(1)
    return uniforms([streams.noise(t, TOKENS, Purpose.TARGET).all() for t in range(ROWS)])


def seeds() -> Floats:
    return uniforms([Streams(seed).noise(9, TOKENS, Purpose.TARGET).all() for seed in range(ROWS)])


def indices() -> Floats:
    streams = Streams(1, coupled=False)
    return uniforms([streams.noise(9, TOKENS, Purpose.DRAFT, i).all() for i in range(ROWS)])


def purposes() -> Floats:
    streams = Streams(1, coupled=False)
    return uniforms([streams.noise(t // 4, TOKENS, Purpose(t % 4)).all() for t in range(ROWS)])


def single() -> Floats:
    streams = Streams(1)
    return np.array(
        [[streams.uniform(t, Purpose.ACCEPT, i) for i in range(TOKENS)] for t in range(ROWS)]
    )


def weyl() -> Floats:
    """A broken twin: the counter without the finaliser, evenly spread but not random."""
    steps = np.arange(ROWS)[:, None] * 0.7548776662466927 + np.arange(TOKENS) * 0.5698402909980532
    return steps % 1.0


def repeats() -> Floats:
    """A broken twin: a position's noise is the last one's, one token on."""
    line = np.random.default_rng(0).random(ROWS + TOKENS)
    return np.stack([line[t : t + TOKENS] for t in range(ROWS)])


def pairs(first: Floats, second: Floats) -> float:
    """p-value of independence and uniformity of pairs over a 16 by 16 grid."""
    cells = (first * 16).astype(int) * 16 + (second * 16).astype(int)
    counts = np.bincount(cells.ravel(), minlength=256).astype(np.float64)
    return p_value(counts, np.full(256, 1 / 256))


def suspicions(table: Floats) -> list[float]:
    """p-values of all checks of one table."""
    fine = np.bincount((table.ravel() * 1024).astype(int), minlength=1024).astype(np.float64)
    low = np.bincount((table.ravel() * 2**20 % 64).astype(int), minlength=64).astype(np.float64)
    # Two-sided: chi-squared also falls too low where numbers are spread too evenly.
    spread = [p_value(fine, np.full(1024, 1 / 1024)), p_value(low, np.full(64, 1 / 64))]
    grids = [
        pairs(table[:, 1:], table[:, :-1]),
        pairs(table[1:], table[:-1]),
        pairs(table[1:, :-1], table[:-1, 1:]),
        pairs(table[:, 16:], table[:, :-16]),
        pairs(table[16:], table[:-16]),
    ]
    means = np.abs((table.mean(axis=1) - 0.5) * math.sqrt(12 * TOKENS))
    tails = [math.erfc(float(means.max()) / math.sqrt(2)) * ROWS]
    return [min(p, 1 - p) for p in spread + grids] + tails


@pytest.mark.parametrize("table", [positions, seeds, indices, purposes, single])
def test_uniform_and_independent(table: Table) -> None:
    assert min(suspicions(table())) > SUSPICIOUS / 10


@pytest.mark.parametrize("table", [weyl, repeats])
def test_a_broken_generator_is_flagged(table: Table) -> None:
    assert min(suspicions(table())) < SUSPICIOUS / 10


def test_the_winner_is_drawn_from_p() -> None:
    """The tail decides races: 50 tokens of a Zipf distribution, 40,000 draws."""
    p = 1 / np.arange(1, 51)
    p /= p.sum()
    scores, streams = np.log(p).astype(np.float32), Streams(8)
    winners = [
        int((scores + streams.noise(t, 50, Purpose.TARGET).all()).argmax()) for t in range(40_000)
    ]
    assert p_value(np.bincount(winners, minlength=50).astype(np.float64), p) > SUSPICIOUS


def test_rare_tokens_win_as_often_as_they_should() -> None:
    """Half the probability on one token, the rest thin over 32,000."""
    size = 32_000
    scores = np.full(size, math.log(0.5 / (size - 1)), dtype=np.float32)
    scores[0] = math.log(0.5)
    streams, runs = Streams(4), 1500
    winners = np.array(
        [(scores + streams.noise(t, size, Purpose.TARGET).all()).argmax() for t in range(runs)]
    )
    thin = winners[winners > 0]
    assert abs(len(thin) / runs - 0.5) < 4 * math.sqrt(0.25 / runs)
    quarters = np.bincount(thin * 4 // size, minlength=4).astype(np.float64)
    assert p_value(quarters, np.full(4, 0.25)) > SUSPICIOUS
    assert len(set(thin.tolist())) > 0.95 * len(thin)
