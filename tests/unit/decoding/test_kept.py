"""A token that is said to be kept for certain survives the filters; most that win are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import in_full

from edgedec.decoding.randomness import Purpose
from edgedec.decoding.ranking import Scored
from edgedec.decoding.sampling import Sampler, SamplingParams, filters, rows
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree

# Columns of a row: as many as the noise draws one by one, and more.
SIZES = (4096, 20_000)
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


def check(row: FloatArray, params: SamplingParams) -> None:
    """Compare every likely token with what the filters keep."""
    scale = np.float32(1 / params.temperature)
    survivors = set(filters.survivors(row * scale, params).tolist())
    for token in np.argsort(-row, kind="stable")[:60].tolist():
        said = rows.surely_kept(row, token, float(row.max()), scale, params)
        assert token in survivors or not said


@given(
    st.integers(1, 3000),
    st.floats(0, 12),
    st.sampled_from(FILTERS),
    st.sampled_from([1e-3, 0.2, 0.8, 1.0, 3.0, 100.0, 1e6]),
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


def check_borders() -> None:
    """Rows and filters between whose sides rounding decides."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 40))
        # Neighbours among float32 numbers, which a temperature may make equal.
        row = rng.integers(0, 4, size).astype(np.int32) + np.float32(rng.normal() * 9).view(
            np.int32
        )
        check_all(row.view(np.float32), rng)
        check_all((rng.standard_normal(size) * 3).astype(np.float32), rng)


def check_all(row: FloatArray, rng: np.random.Generator) -> None:
    temperature = float(rng.choice([1e-3, 0.7, 1.0, 100.0]))
    scores = row * np.float32(1 / temperature)
    weights = np.sort(np.exp(scores - scores.max()))[::-1]
    held = np.cumsum(weights, dtype=np.float64) / float(weights.sum())
    place = int(rng.integers(len(row)))
    least, reached = float(weights[place]), min(float(held[place]), 1.0)
    chosen: list[dict[str, Any]] = [{"top_k": place + 1}, {"top_p": reached}]
    if least > 0:
        chosen += [{"min_p": least}, {"min_p": float(np.nextafter(least, 2))}]
    for one in chosen:
        if one.get("min_p", 0.0) <= 1:
            check(row, SamplingParams(temperature=temperature, **one))


def test_rounding_does_not_decide() -> None:
    check_borders()


@pytest.mark.parametrize("margins", [("_ROUNDING",), ("_ROUNDING", "_SUMMED")])
def test_missing_margins_are_noticed(
    monkeypatch: pytest.MonkeyPatch, margins: tuple[str, ...]
) -> None:
    for margin in margins:
        monkeypatch.setattr(rows, margin, 0.0)
    with pytest.raises(AssertionError):
        check_borders()


def test_scores_that_float32_does_not_hold_are_left_to_the_filters() -> None:
    row = np.array([1e37, 2e37, *[0.0] * 48], np.float32)
    with np.errstate(over="ignore"):
        check(row, SamplingParams(temperature=1e-3, top_k=1))


@functools.cache
def like_a_language_models(seed: int, size: int = 20_000) -> FloatArray:
    """A row whose probabilities fall with about rank ** -1.5, which nobody may change."""
    ranks = np.random.default_rng(seed).permutation(np.arange(1, size + 1))
    row: FloatArray = (-1.5 * np.log(ranks)).astype(np.float32)
    row.setflags(write=False)
    return row


@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_the_likeliest_are_said_to_be_kept(chosen: dict[str, Any]) -> None:
    params = SamplingParams(temperature=0.8, **chosen)
    row = like_a_language_models(0)
    scale = np.float32(1 / params.temperature)
    scores = row * scale
    chances = np.exp(scores - scores.max())
    survivors = filters.survivors(scores, params)
    said = [token for token in survivors.tolist() if rows.surely_kept(row, token, 0, scale, params)]
    # Weighted by how often they win.
    assert chances[said].sum() > 0.8 * chances[survivors].sum()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_without_numbers_is_left_to_the_filters(bad: float) -> None:
    row = np.full(50, bad, np.float32)
    assert not rows.surely_kept(row, 0, bad, np.float32(1), SamplingParams(top_k=5, temperature=1))
    row[1:] = 0
    assert bad == -np.inf or not rows.surely_kept(
        row, 3, 0.0, np.float32(1), SamplingParams(top_k=5, temperature=1)
    )


@dataclass(frozen=True)
class Kind:
    """Who draws, with whose noise, from what kind of pass."""

    purpose: Purpose
    coupled: bool
    passes: str


KINDS = [
    Kind(purpose, coupled, passes)
    for purpose in (Purpose.TARGET, Purpose.DRAFT)
    for coupled in (True, False)
    for passes in ("first known", "top known", "whole")
]


def scored_as(logits: FloatArray, passes: str) -> Pass:
    scored = Scored(0, logits, 8, Want.LOGITS)
    if passes == "first known":
        return scored
    ids, tops = scored.top_ids, scored.top_logits
    return scored if passes == "top known" else Pass(0, ids, tops, logits)


def check_drawn(chosen: dict[str, Any], size: int, kind: Kind = KINDS[0]) -> None:
    """Compare tokens as drawn with those of filtered rows and all noise."""
    for seed in range(12):
        logits = np.stack([like_a_language_models(10 * seed + place, size) for place in range(8)])
        logits[:, seed::97] = -np.inf
        params = SamplingParams(temperature=0.8, seed=seed, **chosen)
        sampler = Sampler(params, size, [0], coupled=kind.coupled)
        tree = TokenTree.chain([0] * len(logits))
        rows = sampler.rows(scored_as(logits, kind.passes), tree, kind.purpose)
        for node, row in enumerate(logits):
            scores = row * sampler.inverse_temperature
            ids = filters.survivors(scores, params)
            sums = scores[ids] + rows._noise(node).all()[ids]
            assert rows.draw(node) == ids[sums.argmax()]


# Each kind of pass, of a target and of a draft, coupled or not.
@pytest.mark.parametrize("kind", in_full(KINDS[::2] + KINDS[1::2], 6), ids=str)
@pytest.mark.parametrize("size", in_full(SIZES))
def test_draws_are_those_of_filtered_rows(size: int, kind: Kind) -> None:
    for chosen in FILTERS:
        check_drawn(chosen, size, kind)


def without(**filters_off: Any) -> Callable[..., bool]:
    """Forgets a filter."""
    honest = rows.surely_kept

    def twin(
        row: FloatArray, token: int, best: float, scale: np.float32, params: SamplingParams
    ) -> bool:
        return honest(row, token, best, scale, replace(params, **filters_off))

    return twin


@pytest.mark.parametrize("size", in_full(SIZES))
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


@pytest.mark.parametrize("size", SIZES)
def test_most_rows_are_not_filtered(size: int) -> None:
    count = 40
    logits = np.stack([like_a_language_models(place, size) for place in range(count)])
    sampler = Sampler(SamplingParams(temperature=0.8, top_p=0.9, seed=0), size, [0])
    drawn = sampler.rows(scored_as(logits, "whole"), TokenTree.chain([0] * count), Purpose.DRAFT)
    with mock.patch.object(filters, "survivors", wraps=filters.survivors) as filtering:
        for node in range(count):
            drawn.draw(node)
    assert filtering.call_count < count / 2
