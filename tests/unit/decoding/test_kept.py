"""A token that is said to be kept for certain survives the filters; most that win are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding.noise import Noise
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.ranking import Scored
from edgedec.decoding.sampling import Sampler, SamplingParams, filters, kept, rows
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree

FILTERS: list[dict[str, Any]] = [
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 40},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.8},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
]


def check(row: FloatArray, params: SamplingParams) -> list[bool]:
    """Compare every likely token with what the filters keep."""
    scale = np.float32(1 / params.temperature)
    survivors = set(filters.survivors(row * scale, params).tolist())
    said = []
    for token in np.argsort(-row, kind="stable")[:60].tolist():
        said.append(kept.surely_kept(row, token, float(row.max()), scale, params))
        assert token in survivors or not said[-1]
    return said


@given(
    st.integers(1, 3000),
    st.floats(0, 12),
    st.sampled_from(FILTERS),
    st.sampled_from([1e-3, 0.2, 0.8, 1.0, 3.0]),
    st.sampled_from(["whole", "tenths", "exact"]),
    st.sampled_from([0.0, 30.0, 3e4]),
    st.integers(0, 2**32),
)
def test_what_is_said_to_be_kept_survives(
    size: int,
    spread: float,
    chosen: dict[str, Any],
    temperature: float,
    ties: str,
    offset: float,
    seed: int,
) -> None:
    row = np.random.default_rng(seed).standard_normal(size) * spread
    if ties != "exact":
        row = np.round(row, 0 if ties == "whole" else 1)
    check((row + offset).astype(np.float32), SamplingParams(temperature=temperature, **chosen))


def like_a_language_models(seed: int, size: int = 20_000) -> FloatArray:
    """A row whose probabilities fall with about rank ** -1.5."""
    ranks = np.random.default_rng(seed).permutation(np.arange(1, size + 1))
    return (-1.5 * np.log(ranks)).astype(np.float32)


@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_the_likeliest_are_said_to_be_kept(chosen: dict[str, Any]) -> None:
    params = SamplingParams(temperature=0.8, **chosen)
    row = like_a_language_models(0)
    scale = np.float32(1 / params.temperature)
    scores = row * scale
    chances = np.exp(scores - scores.max())
    survivors = filters.survivors(scores, params)
    said = [token for token in survivors.tolist() if kept.surely_kept(row, token, 0, scale, params)]
    # Weighted by how often they win.
    assert chances[said].sum() > 0.8 * chances[survivors].sum()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_without_numbers_is_left_to_the_filters(bad: float) -> None:
    row = np.full(50, bad, np.float32)
    assert not kept.surely_kept(row, 0, bad, np.float32(1), SamplingParams(top_k=5, temperature=1))


def drawn(params: SamplingParams, logits: FloatArray) -> tuple[list[int], list[int]]:
    """Return tokens as drawn, and as the filtered rows with all noise would have them."""
    size = logits.shape[1]
    scored = Scored(0, logits, 8, Want.LOGITS)
    sampler = Sampler(params, size, [0])
    found = sampler.rows(scored, TokenTree.chain([0] * len(logits)), Purpose.TARGET)
    expected = []
    for node, row in enumerate(logits):
        ids = filters.survivors(row * sampler.inverse_temperature, params)
        sums = (row * sampler.inverse_temperature)[ids] + all_noise(params, node, size)[ids]
        expected.append(int(ids[sums.argmax()]))
    return [found.draw(node) for node in range(len(logits))], expected


def all_noise(params: SamplingParams, node: int, size: int) -> FloatArray:
    assert params.seed is not None
    noise: Noise = Streams(params.seed).noise(1 + node, size, Purpose.TARGET)
    return noise.all()


def check_drawn(chosen: dict[str, Any], size: int) -> None:
    for seed in range(12):
        logits = np.stack([like_a_language_models(10 * seed + place, size) for place in range(8)])
        params = SamplingParams(temperature=0.8, seed=seed, **chosen)
        found, expected = drawn(params, logits)
        assert found == expected


@pytest.mark.parametrize("size", [4096, 20_000])
@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_draws_are_those_of_filtered_rows(chosen: dict[str, Any], size: int) -> None:
    check_drawn(chosen, size)


def without(**filters_off: Any) -> Callable[..., bool]:
    """Forgets a filter."""
    honest = kept.surely_kept

    def twin(*arguments: Any) -> bool:
        return honest(*arguments[:-1], replace(arguments[-1], **filters_off))

    return twin


@pytest.mark.parametrize("size", [4096, 20_000])
@pytest.mark.parametrize(
    ("chosen", "forgotten"),
    [
        ({"top_k": 3, "min_p": 0.001}, {"top_k": 0}),
        ({"top_k": 40, "top_p": 0.8}, {"top_p": 1.0}),
        ({"top_k": 40, "min_p": 0.1}, {"min_p": 0.0}),
    ],
)
def test_a_forgotten_filter_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, Any],
    forgotten: dict[str, Any],
    size: int,
) -> None:
    monkeypatch.setattr(rows, "surely_kept", without(**forgotten))
    with pytest.raises(AssertionError):
        check_drawn(chosen, size)
