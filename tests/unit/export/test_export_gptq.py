"""Calibrated rounding: against the definition, against plain rounding, and where it cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import in_full

from edgedec.export import gptq
from edgedec.export.gptq import Gram, round_rows
from edgedec.export.quantize import dequantize, quantize
from edgedec.export.tensors import FloatArray

RNG = np.random.default_rng(5)


def inputs(columns: int, rows: int = 3000, seed: int = 1) -> FloatArray:
    """Inputs whose channels go together, as those of a model do."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((columns, columns)) * np.exp(-3 * np.arange(columns) / columns)
    x: FloatArray = (rng.standard_normal((rows, columns)) @ mixing.T / 8).astype(np.float32)
    return x


def gram_of(*parts: FloatArray) -> Gram:
    gram = Gram(parts[0].shape[1])
    gram.add(parts)
    return gram


def output_error(weights: FloatArray, rounded: FloatArray, x: FloatArray) -> float:
    """Relative, of the products with inputs."""
    return float(np.linalg.norm(x @ (weights - rounded).T) / np.linalg.norm(x @ weights.T))


def rounded(weights: FloatArray, factor: FloatArray, block_size: int, bits: int = 4) -> FloatArray:
    done = round_rows(weights, factor, bits, block_size)
    return dequantize(done.packed, done.scales, bits, weights.shape[1])


def plain(weights: FloatArray, block_size: int, bits: int = 4) -> FloatArray:
    done = quantize(weights, bits, block_size)
    return dequantize(done.packed, done.scales, bits, weights.shape[1])


@pytest.mark.parametrize("columns", in_full([3, 64, 512, 700, 1100], 4))
def test_the_factor_is_choleskys(columns: int) -> None:
    x = inputs(columns)
    whole = x.T @ x
    whole += 0.01 * np.diagonal(whole).mean() * np.eye(columns, dtype=np.float32)
    found = np.tril(gram_of(x[:1000], x[1000:]).factor())
    expected = np.linalg.cholesky(whole.astype(np.float64))
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("lengths", [[1] * 20, [7] * 9, [30, 1, 1, 30]])
def test_inputs_are_added_a_bounded_number_at_a_time(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gptq, "_ROWS", 8)
    added: list[int] = []
    honest = Gram._add

    def add(self: Gram, x: FloatArray) -> None:
        added.append(len(x))
        honest(self, x)

    monkeypatch.setattr(Gram, "_add", add)
    x = inputs(16, sum(lengths))
    parts = np.split(x, np.cumsum(lengths)[:-1])
    np.testing.assert_allclose(np.tril(gram_of(*parts)._sum), np.tril(x.T @ x), rtol=1e-3)
    assert sum(added) == len(x)
    assert max(added) < 8 + max(lengths)
    assert len(added) < len(lengths) or min(lengths) >= 8, "few inputs are added together"


def test_every_integer_is_the_nearest_to_what_the_later_columns_leave() -> None:
    """The definition, column by column in float64, with the scales that were found."""
    x, weights = inputs(96), RNG.standard_normal((5, 96), dtype=np.float32)
    factor = gram_of(x).factor()
    lower = np.tril(factor).astype(np.float64)
    done = round_rows(weights, factor, 4, 32)
    q = dequantize(done.packed, np.ones_like(done.scales), 4, 96)
    errors = weights - dequantize(done.packed, done.scales, 4, 96).astype(np.float64)
    for column in range(96):
        left = errors[:, column + 1 :] @ lower[column + 1 :, column] / lower[column, column]
        wanted = (weights[:, column] + left) / done.scales[:, column // 32]
        np.testing.assert_allclose(q[:, column], np.clip(wanted, -8, 7), atol=0.501)


@pytest.mark.parametrize("columns", [96, 200, 640])
@pytest.mark.parametrize("block_size", [32, 128])
def test_products_are_closer_than_with_plain_rounding(columns: int, block_size: int) -> None:
    check(columns, block_size)


def check(columns: int = 256, block_size: int = 64) -> None:
    x, weights = inputs(columns), RNG.standard_normal((40, columns), dtype=np.float32)
    done = rounded(weights, gram_of(x).factor(), block_size)
    seen, unseen = x, inputs(columns, seed=1)[1500:]
    for texts in (seen, unseen):
        found = output_error(weights, done, texts)
        assert found < 0.75 * output_error(weights, plain(weights, block_size), texts)


def forgets_later_blocks(honest: Any) -> Any:
    return lambda triangle: 0 * honest(triangle)


def test_blocks_that_do_not_make_up_for_others_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factor = gram_of(inputs(256)).factor()
    monkeypatch.setattr(Gram, "factor", lambda self: factor)
    monkeypatch.setattr(np.linalg, "inv", forgets_later_blocks(np.linalg.inv))
    with pytest.raises(AssertionError):
        check(block_size=16)


def test_columns_that_do_not_make_up_for_others_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alone(goal: FloatArray, triangle: FloatArray, scale: FloatArray, bits: int) -> FloatArray:
        return honest(goal, np.diag(np.diagonal(triangle)), scale, bits)

    honest = gptq._round_block
    monkeypatch.setattr(gptq, "_round_block", alone)
    with pytest.raises(AssertionError):
        check(block_size=256)


@pytest.mark.parametrize("dead", [[0], [5, 6, 7], [63]])
def test_channels_that_are_always_zero(dead: list[int]) -> None:
    x, weights = inputs(64), RNG.standard_normal((8, 64), dtype=np.float32)
    x[:, dead] = 0
    done = rounded(weights, gram_of(x).factor(), 32)
    assert np.isfinite(done).all()
    assert output_error(weights, done, x) < output_error(weights, plain(weights, 32), x)


def test_fewer_inputs_than_channels() -> None:
    x, weights = inputs(256, rows=40), RNG.standard_normal((8, 256), dtype=np.float32)
    done = rounded(weights, gram_of(x).factor(), 64)
    assert output_error(weights, done, x) < 0.5 * output_error(weights, plain(weights, 64), x)


def test_damping_is_raised_until_a_factor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, calls = np.linalg.cholesky, []

    def fails_twice(h: FloatArray) -> FloatArray:
        calls.append(h[0, 0])
        if len(calls) in (2, 4):  # after the first panel, so that some of it was overwritten
            raise np.linalg.LinAlgError
        return honest(h)

    x = inputs(600)
    whole = x.T @ x
    mean = np.diagonal(whole).mean()
    monkeypatch.setattr(np.linalg, "cholesky", fails_twice)
    found = np.tril(gram_of(x).factor())
    np.testing.assert_allclose(
        np.array(calls[:6:2]) - whole[0, 0], mean * np.array([0.01, 0.03, 0.1]), rtol=0.05
    )
    np.testing.assert_allclose(
        found @ found.T, whole + 0.1 * mean * np.eye(600), atol=1e-3 * whole.max()
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_inputs_that_tell_nothing(value: float) -> None:
    x = np.full((10, 8), value, np.float32)
    with pytest.raises(np.linalg.LinAlgError, match="finite"):
        gram_of(x).factor()


def test_rows_do_not_depend_on_each_other() -> None:
    weights, factor = RNG.standard_normal((9, 128), dtype=np.float32), gram_of(inputs(128)).factor()
    whole = round_rows(weights, factor, 4, 32)
    part = round_rows(weights[3:5], factor, 4, 32)
    np.testing.assert_array_equal(whole.packed[3:5], part.packed)
    # Products of matrices of other shapes may add in another order.
    np.testing.assert_allclose(whole.scales[3:5], part.scales, rtol=1e-6)


def test_the_error_that_is_told_is_that_of_the_weights() -> None:
    weights = RNG.standard_normal((9, 100), dtype=np.float32)
    done = round_rows(weights, gram_of(inputs(100)).factor(), 4, 32)
    difference = weights - dequantize(done.packed, done.scales, 4, 100)
    assert done.squared_error == pytest.approx(float((difference**2).sum()), rel=1e-3)
    assert done.squared_weight == pytest.approx(float((weights**2).sum()), rel=1e-5)
