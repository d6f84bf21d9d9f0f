"""Block-wise quantisation: error, edges, layout."""

import numpy as np
import pytest

from edgedec.export.quantize import dequantize, quantize


def nearest(weights, bits, block_size):
    """Plain rounding: the largest weight of a block takes the largest integer."""
    flat = weights.reshape(-1, block_size)
    high = 2 ** (bits - 1) - 1
    scale = np.abs(flat).max(axis=1, keepdims=True) / high
    return (np.clip(np.rint(flat / scale), -high - 1, high) * scale).reshape(weights.shape)


def relative(weights, again):
    return float(np.sqrt(np.square(weights - again).sum() / np.square(weights).sum()))


@pytest.fixture
def weights():
    return np.random.default_rng(0).standard_normal((37, 256), dtype=np.float32)


@pytest.mark.parametrize(("bits", "gain"), [(4, 0.9), (8, 1.0)])
@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_better_than_nearest(weights, bits, gain, block_size):
    done = quantize(weights, bits, block_size)
    again = dequantize(done.packed, done.scales, bits, 256)
    error = relative(weights, again)
    assert error <= gain * relative(weights, nearest(weights, bits, block_size))
    assert error == pytest.approx(np.sqrt(done.squared_error / done.squared_weight), rel=1e-3)


def test_no_other_scale_near_is_better(weights):
    """A fine search over scales finds little that the few candidates missed."""
    done = quantize(weights, 4, 32)
    best = np.full(len(weights) * 8, np.inf)
    flat = weights.reshape(-1, 32)
    for factor in np.linspace(0.7, 1.3, 121):
        for sign in (1, -1):
            scale = sign * factor * np.abs(flat).max(axis=1, keepdims=True) / 8
            q = np.clip(np.rint(flat / scale), -8, 7)
            fit = (flat * q).sum(1, keepdims=True) / np.maximum((q * q).sum(1, keepdims=True), 1)
            best = np.minimum(best, np.square(flat - q * fit).sum(axis=1))
    assert done.squared_error < 1.06 * best.sum()


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_zeros_stay_zeros(bits):
    weights = np.zeros((3, 96), np.float32)
    weights[1, 40] = -2.5
    done = quantize(weights, bits, 32)
    assert np.isfinite(done.scales).all()
    np.testing.assert_array_equal(dequantize(done.packed, done.scales, bits, 96), weights)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [1e-38, 1e-42, 1e18])
def test_extreme_weights(bits, size):
    """Tiny and huge weights neither overflow nor become anything but numbers."""
    weights = (np.random.default_rng(1).standard_normal((4, 64)) * size).astype(np.float32)
    done = quantize(weights, bits, 32)
    again = dequantize(done.packed, done.scales, bits, 64)
    assert np.isfinite(again).all()
    assert np.abs(weights - again).max() <= 0.2 * np.abs(weights).max() + 1e-30


def test_a_partial_block_is_filled_up(weights):
    done = quantize(weights[:, :250], 4, 32)
    assert done.packed.shape == (37, 8, 16)
    assert relative(weights[:, :250], dequantize(done.packed, done.scales, 4, 250)) < 0.12


def test_a_large_matrix_is_the_same_in_tiles(weights):
    many = np.tile(weights, (40, 1))
    whole, part = quantize(many, 4, 32), quantize(weights, 4, 32)
    np.testing.assert_array_equal(whole.packed, np.tile(part.packed, (40, 1, 1)))
    np.testing.assert_array_equal(whole.scales, np.tile(part.scales, (40, 1)))
