"""Numbers that belong to a place, not to a call."""

from __future__ import annotations

import numpy as np
import pytest

from edgedec.decoding.randomness import Purpose, Streams

FROZEN = [
    [0.612403512, 1.61261356, -0.730158091, 0.347647995],
    [2.35430694, 0.306274384, 0.864082158, 0.561019838],
]
FROZEN_UNIFORMS = [0.38335805537504675, 0.051769213011753856, 0.4217044590844953]


def test_the_numbers_of_a_seed_never_change() -> None:
    """Frozen: a saved session must go on with the text it would have had."""
    streams = Streams(42)
    places = [(0, Purpose.TARGET), (100_000, Purpose.RECOVER)]
    for (position, purpose), values in zip(places, FROZEN, strict=True):
        noise = streams.gumbel_of(position, np.array([0, 1, 2, 31_999]), purpose)
        assert noise.tolist() == pytest.approx(values, rel=2e-7)
    assert streams.uniform(7, Purpose.ACCEPT) == FROZEN_UNIFORMS[0]
    assert streams.uniform(7, Purpose.ACCEPT, 1) == FROZEN_UNIFORMS[1]
    assert Streams(-(2**70)).uniform(0, Purpose.ACCEPT) == FROZEN_UNIFORMS[2]


@pytest.mark.parametrize("size", [1, 5, 4096, 4097, 10_000])
def test_noise_of_some_tokens_is_the_noise_of_all(size: int) -> None:
    """Bit for bit, also across the blocks that a long row is made in."""
    streams = Streams(3)
    row = streams.gumbel(12, size, Purpose.TARGET)
    ids = np.unique(np.random.default_rng(0).integers(0, size, 50))
    assert row.dtype == np.float32
    assert np.isfinite(row).all()
    np.testing.assert_array_equal(streams.gumbel_of(12, ids, Purpose.TARGET), row[ids])
    np.testing.assert_array_equal(Streams(3).gumbel(12, 2 * size, Purpose.TARGET)[:size], row)


def test_everything_in_the_key_matters() -> None:
    rows = [
        Streams(1, coupled=False).gumbel(5, 64, Purpose.TARGET),
        Streams(2, coupled=False).gumbel(5, 64, Purpose.TARGET),
        Streams(1, coupled=False).gumbel(6, 64, Purpose.TARGET),
        Streams(1, coupled=False).gumbel(5, 64, Purpose.DRAFT),
        Streams(1, coupled=False).gumbel(5, 64, Purpose.DRAFT, index=1),
    ]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_a_coupled_draft_draws_with_the_targets_noise() -> None:
    coupled, own = Streams(1), Streams(1, coupled=False)
    target = coupled.gumbel(5, 64, Purpose.TARGET)
    np.testing.assert_array_equal(coupled.gumbel(5, 64, Purpose.DRAFT), target)
    np.testing.assert_array_equal(own.gumbel(5, 64, Purpose.TARGET), target)
    assert (own.gumbel(5, 64, Purpose.DRAFT) != target).all()


def test_rows_are_kept_for_a_while_and_cannot_be_written() -> None:
    streams = Streams(1)
    row = streams.gumbel(0, 64, Purpose.TARGET)
    assert streams.gumbel(0, 64, Purpose.DRAFT) is row
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    for position in range(1, 200):
        streams.gumbel(position, 64, Purpose.TARGET)
    again = streams.gumbel(0, 64, Purpose.TARGET)
    assert again is not row
    np.testing.assert_array_equal(again, row)
