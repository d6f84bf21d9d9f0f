"""Numbers that belong to a place, not to a call."""

from __future__ import annotations

import numpy as np
import pytest

from edgedec.decoding import noise as noises
from edgedec.decoding.noise import CLOSE, LARGE_FROM
from edgedec.decoding.randomness import Purpose, Streams

IDS = [0, 1, 2, 31_999]  # and the first of large noise
FROZEN = [
    (128, [0.605208874, 1.59317195, -0.732042193, 0.342122257, 7.54663277]),
    (277, [2.31391716, 0.300972015, 0.854838014, 0.554184318, 6.3430872]),
]
FROZEN_UNIFORMS = [0.38335805537504675, 0.051769213011753856, 0.4217044590844953]


def test_the_numbers_of_a_seed_never_change() -> None:
    """Frozen: a saved session must go on with the text it would have had."""
    streams = Streams(42)
    places = [(0, Purpose.TARGET), (100_000, Purpose.RECOVER)]
    for (position, purpose), (first, values) in zip(places, FROZEN, strict=True):
        noise = streams.noise(position, 40_000, purpose)
        assert noise.large_ids[0] == first
        assert noise.of(np.array([*IDS, first])).tolist() == pytest.approx(values, rel=2e-7)
    assert streams.uniform(7, Purpose.ACCEPT) == FROZEN_UNIFORMS[0]
    assert streams.uniform(7, Purpose.ACCEPT, 1) == FROZEN_UNIFORMS[1]
    assert Streams(-(2**70)).uniform(0, Purpose.ACCEPT) == FROZEN_UNIFORMS[2]


def test_the_generator_is_splitmix64() -> None:
    """Its published first numbers for the seed 1234567."""
    words = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * noises._GOLDEN
    noises._mix(words, np.empty_like(words))
    assert words.tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
        16408922859458223821,
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 5, 300, 4096, 4097, 10_000])
def test_noise_of_some_tokens_is_the_noise_of_all(size: int) -> None:
    """Bit for bit, also across the blocks that a long row is made in."""
    row = Streams(3).noise(12, size, Purpose.TARGET).all()
    ids = np.unique(np.random.default_rng(0).integers(0, size, 50))
    assert row.dtype == np.float32
    assert np.isfinite(row).all()
    assert row.shape == (size,)
    noise = Streams(3).noise(12, size, Purpose.TARGET)
    np.testing.assert_array_equal(noise.of(ids), row[ids])
    np.testing.assert_array_equal(noise.of(noise.large_ids), noise.large)
    noise.all()
    np.testing.assert_array_equal(noise.of(ids), row[ids])


@pytest.mark.parametrize("asked", [12, 7, 5])
def test_noise_is_the_same_in_whatever_order_it_is_asked_for(asked: int) -> None:
    """Several positions' are drawn in one go, and a larger vocabulary has the same tokens'."""
    row = Streams(3).noise(12, 5000, Purpose.TARGET).all()
    streams = Streams(3)
    streams.noise(asked, 5000, Purpose.TARGET)
    np.testing.assert_array_equal(streams.noise(12, 5000, Purpose.TARGET).all(), row)
    wider = Streams(3).noise(12, 99_000, Purpose.TARGET).all()
    np.testing.assert_array_equal(wider[:5000], row)


def test_the_tokens_of_large_noise_are_all_listed() -> None:
    for seed in range(40):
        noise = Streams(seed).noise(seed, 20_000, Purpose.TARGET)
        row = noise.all()
        assert (np.diff(noise.large_ids) > 0).all()
        np.testing.assert_array_equal(
            np.flatnonzero(row >= np.float32(LARGE_FROM)), noise.large_ids
        )


def test_a_walk_that_ends_too_soon_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Streams(1).noise(0, 100_000, Purpose.TARGET).large_ids
    honest = noises._walked
    lengths: list[int] = []

    def short(keys: noises.Words, count: int) -> noises.IntArray:
        lengths.append(count)
        return honest(keys, count if len(lengths) > 3 else 2 + len(lengths))

    monkeypatch.setattr(noises, "_walked", short)
    found = Streams(1).noise(0, 100_000, Purpose.TARGET).large_ids
    assert len(lengths) == 4
    np.testing.assert_array_equal(found, whole)


def test_what_noise_is_about_is_close_to_it() -> None:
    noise = Streams(5).noise(3, 3000, Purpose.TARGET)
    row, large = noise.all(), set(noise.large_ids.tolist())
    for token in range(3000):
        about = noise.about(token)
        assert about < row[token] + CLOSE
        assert token in large or about > row[token] - CLOSE
    few, fresh = [7, 4, 900, 4], Streams(5).noise(3, 3000, Purpose.TARGET)
    assert fresh.about_all(few) == [noise.about(token) for token in few]
    many = [token for token in range(40) if token not in large]
    assert fresh.about_all(many) == pytest.approx(row[many].tolist(), abs=CLOSE)


def test_what_large_noise_is_about_is_close_to_it() -> None:
    for position in range(5):
        noise = Streams(6).noise(position, 30_000, Purpose.TARGET)
        abouts = [noise.large_about(place) for place in range(len(noise.large_ids))]
        assert abouts == pytest.approx(noise.large.tolist(), abs=CLOSE)
        assert noise.most == max(abouts)


def test_without_large_noise_the_most_is_where_it_begins() -> None:
    noise = Streams(2).noise(1, 3, Purpose.TARGET)
    assert not len(noise.large_ids)
    assert noise.most == pytest.approx(LARGE_FROM)


def test_everything_in_the_key_matters() -> None:
    rows = [
        Streams(1, coupled=False).noise(5, 64, Purpose.TARGET).all(),
        Streams(2, coupled=False).noise(5, 64, Purpose.TARGET).all(),
        Streams(1, coupled=False).noise(6, 64, Purpose.TARGET).all(),
        Streams(1, coupled=False).noise(5, 64, Purpose.DRAFT).all(),
        Streams(1, coupled=False).noise(5, 64, Purpose.DRAFT, index=1).all(),
    ]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_a_coupled_draft_draws_with_the_targets_noise() -> None:
    coupled, own = Streams(1), Streams(1, coupled=False)
    target = coupled.noise(5, 64, Purpose.TARGET).all()
    np.testing.assert_array_equal(coupled.noise(5, 64, Purpose.DRAFT).all(), target)
    np.testing.assert_array_equal(own.noise(5, 64, Purpose.TARGET).all(), target)
    assert (own.noise(5, 64, Purpose.DRAFT).all() != target).all()


def test_noise_is_kept_for_a_while_and_cannot_be_written() -> None:
    streams = Streams(1)
    noise = streams.noise(0, 64, Purpose.TARGET)
    row = noise.all()
    assert streams.noise(0, 64, Purpose.DRAFT) is noise
    assert noise.all() is row
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    for position in range(1, 200):
        streams.noise(position, 64, Purpose.TARGET)
    again = streams.noise(0, 64, Purpose.TARGET)
    assert again is not noise
    np.testing.assert_array_equal(again.all(), row)
