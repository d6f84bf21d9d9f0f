"""The race of a few tokens has the winners of the race of all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding.randomness import Noise, Purpose, Streams
from edgedec.decoding.sampling import filters, race
from edgedec.decoding.tree import FloatArray

SIZES = (1, 2, 7, 32, 257, 4096, 20_000)


@pytest.fixture(autouse=True)
def _no_vocabulary_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "SMALL_VOCABULARY", 0)


def row_of(rng: np.random.Generator, size: int, spread: float, *, ties: bool) -> FloatArray:
    row = (rng.standard_normal(size) * spread).astype(np.float32)
    return np.round(row) if ties else row


def winners(ids: np.ndarray | None, sums: FloatArray, count: int) -> list[int]:
    places = filters.ranked(sums, min(count, len(sums)))
    found: list[int] = (places if ids is None else ids[places]).tolist()
    return found


def check(seed: int, size: int, spread: float, count: int, scale: float, *, ties: bool) -> int:
    """Compare with every token's sum; return how many contenders there were."""
    rng = np.random.default_rng(seed)
    row, noise = row_of(rng, size, spread, ties=ties), noise_of(seed, size)
    likely = np.argsort(-row)[:8].tolist()
    factor = np.float32(scale)
    ids, sums = race.race(row, factor, noise, likely, count)
    whole = row * factor + noise_of(seed, size).all()
    assert winners(ids, sums, count) == winners(None, whole, count)
    return size if ids is None else len(ids)


def noise_of(seed: int, size: int) -> Noise:
    return Streams(seed).noise(11, size, Purpose.TARGET)


@given(
    st.integers(0, 2**32), st.sampled_from(SIZES), st.floats(0, 12), st.integers(1, 9),
    st.floats(1e-6, 1e3), st.booleans(),
)  # fmt: skip
def test_the_winners_are_those_of_all(
    seed: int, size: int, spread: float, count: int, scale: float, ties: bool
) -> None:
    check(seed, size, spread, count, scale, ties=ties)


def check_many() -> list[int]:
    return [
        check(seed, 20_000, spread, count, 1.0, ties=False)
        for seed in range(60)
        for spread in (2.0, 3.0, 4.0)
        for count in (1, 3)
    ]


def test_few_are_looked_at() -> None:
    assert np.median(check_many()) < 100


def no_large(honest: Callable[..., object]) -> Callable[..., object]:
    """Leaves out tokens that win by their noise."""

    def twin(row: FloatArray, scale: np.float32, noise: Noise, *more: object) -> object:
        none = noise.large_ids[:0]
        return honest(row, scale, Noise(noise._key, len(row), none, none.astype("f4")), *more)

    return twin


def test_a_race_without_the_tokens_of_large_noise_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(race, "race", no_large(race.race))
    with pytest.raises(AssertionError):
        check_many()


@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_a_race_that_expects_too_little_noise_is_noticed(
    bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "LARGE_FROM", bound)
    with pytest.raises(AssertionError):
        check_many()


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("token", [0, 5000, 19_999, "large"])
def test_what_is_no_number_is_handed_on(token: int | str, count: int) -> None:
    row, noise = row_of(np.random.default_rng(1), 20_000, 4.0, ties=False), noise_of(1, 20_000)
    row[noise.large_ids[5] if token == "large" else token] = np.nan
    likely = np.argsort(-row[1:5000])[:8] + 1
    _, sums = race.race(row, np.float32(1), noise, likely.tolist(), count)
    assert np.isnan(sums[sums.argmax()])


def test_one_contender_needs_no_noise() -> None:
    row = np.zeros(20_000, np.float32)
    row[700] = 90
    ids, sums = race.race(row, np.float32(1), noise_of(2, len(row)), [700], 1)
    assert ids is not None
    assert ids.tolist() == [700]
    assert sums.tolist() == [90]
