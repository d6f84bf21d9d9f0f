"""A few exponential clocks have the winners of all of them, and so has its short form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding.noise import LARGE_FROM, Noise, _LargeNoise
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import exponential_clocks, filters
from edgedec.decoding.tree import FloatArray

SIZES = (1, 2, 7, 32, 257, 4096, 20_000)


@pytest.fixture(autouse=True)
def _no_vocabulary_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential_clocks, "SMALL_VOCABULARY", 0)


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
    ids, sums = exponential_clocks.noisy_scores(row, factor, noise, likely, count)
    whole = row * factor + noise_of(seed, size).all()
    assert winners(ids, sums, count) == winners(None, whole, count)
    for leading in (likely, likely[:1]):
        won = exponential_clocks.winner(
            row, factor, noise_of(seed, size), leading, row[leading].tolist()
        )
        assert won is None or won == whole.argmax()
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


@pytest.mark.parametrize("known", [1, 8])
def test_scores_that_float32_does_not_hold_have_no_clear_winner(known: int) -> None:
    """Both likely tokens' scores are infinite in float32, where the first of them wins."""
    row = np.zeros(9000, np.float32)
    row[[3, 5]] = 1e37, 2e37
    likely = np.argsort(-row, kind="stable")[:known].tolist()
    noise = noise_of(0, len(row))
    won = exponential_clocks.winner(row, np.float32(1000), noise, likely, row[likely].tolist())
    assert won is None


def no_large(honest: Callable[..., object]) -> Callable[..., object]:
    """Leaves out tokens that win by their noise."""

    def twin(row: FloatArray, scale: np.float32, noise: Noise, *more: object) -> object:
        none = _LargeNoise(np.zeros((1, 0), np.uint64))
        ids = noise.large_ids[:0]
        return honest(row, scale, Noise(noise._key, len(row), ids, none, 0, LARGE_FROM), *more)

    return twin


def check_winners(spread: float = 8.0) -> float:
    """Compare winners with every token's sum; return the share that was clear."""
    clear, runs = 0, 200
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        row, noise = row_of(rng, 20_000, spread, ties=False), noise_of(seed, 20_000)
        likely = np.argsort(-row)[:8].tolist()
        won = exponential_clocks.winner(row, np.float32(1), noise, likely, row[likely].tolist())
        clear += won is not None
        assert won is None or won == (row + noise.all()).argmax()
    return clear / runs


def test_a_peaked_row_has_a_clear_winner_and_a_flat_one_none() -> None:
    assert check_winners(spread=12.0) > 0.9
    assert check_winners(spread=0.3) == 0


@pytest.mark.parametrize(
    ("name", "twin", "compare"),
    [
        ("noisy_scores", no_large(exponential_clocks.noisy_scores), check_many),
        ("winner", no_large(exponential_clocks.winner), check_winners),
        *(
            ("LARGE_FROM", bound, each)
            for bound in (1.0, 3.0)
            for each in (check_many, check_winners)
        ),
    ],
)
def test_without_tokens_of_large_noise_it_is_noticed(
    name: str, twin: object, compare: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exponential_clocks, name, twin)
    with pytest.raises(AssertionError):
        compare()


def test_rounding_decides_no_clear_winner() -> None:
    """Two sums that float32 rounds to the same number: the lower id wins, which it cannot tell."""
    noise = noise_of(3, 20_000)
    first, second = (token for token in (40, 50) if token not in noise.large_ids)
    row = np.full(20_000, -100, np.float32)
    row[first] = 30
    row[second] = 30 + noise.all()[first] - noise.all()[second]
    likely = [int(token) for token in np.argsort(-row)[:8]]
    assert (
        exponential_clocks.winner(row, np.float32(1), noise, likely, row[likely].tolist()) is None
    )
    row[first] += 1
    assert (
        exponential_clocks.winner(row, np.float32(1), noise, likely, row[likely].tolist()) == first
    )


@pytest.mark.parametrize("token", [0, 5000, 19_999, "large", "first"])
def test_a_row_with_a_nan_has_no_clear_winner(token: int | str) -> None:
    """With only the best token known, as of a pass that ranks when asked; NaN leads others."""
    row, noise = row_of(np.random.default_rng(1), 20_000, 4.0, ties=False), noise_of(1, 20_000)
    best = int(row.argmax())
    place = {"large": int(noise.large_ids[5]), "first": best}.get(str(token), token)
    row[place] = np.nan
    assert exponential_clocks.winner(row, np.float32(1), noise, [best], [row[best].item()]) is None
    leading = [int(row.argmax()), best]
    assert (
        exponential_clocks.winner(row, np.float32(1), noise, leading, row[leading].tolist()) is None
    )


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("token", [0, 5000, 19_999, "large"])
def test_what_is_no_number_is_handed_on(token: int | str, count: int) -> None:
    row, noise = row_of(np.random.default_rng(1), 20_000, 4.0, ties=False), noise_of(1, 20_000)
    row[noise.large_ids[5] if token == "large" else token] = np.nan
    likely = np.argsort(-row[1:5000])[:8] + 1
    _, sums = exponential_clocks.noisy_scores(row, np.float32(1), noise, likely.tolist(), count)
    assert np.isnan(sums[sums.argmax()])


def test_one_contender_needs_no_noise() -> None:
    row = np.zeros(20_000, np.float32)
    row[700] = 90
    ids, sums = exponential_clocks.noisy_scores(row, np.float32(1), noise_of(2, len(row)), [700], 1)
    assert ids is not None
    assert ids.tolist() == [700]
    assert sums.tolist() == [90]
