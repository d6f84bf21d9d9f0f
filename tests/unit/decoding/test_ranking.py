"""The best of a row are those that sorting all of it would give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.decoding.ranking import top


@given(
    st.integers(1, 9000),
    st.integers(1, 8),
    st.integers(1, 500),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 99),
)
def test_top(size: int, count: int, values: int, hidden: float, seed: int) -> None:
    """As sorting the whole row would have it, equal ones and rows of few numbers included."""
    rng = np.random.default_rng(seed)
    row = rng.integers(0, values, size).astype(np.float32)
    row[rng.random(size) < hidden] = -np.inf
    count = min(count, size)
    ids, best = top(row, count)
    expected = np.argsort(-row, kind="stable")[:count]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(best, row[expected])


@pytest.mark.parametrize("size", [100, 5000])
@pytest.mark.parametrize("bad", [slice(None), slice(7, 8), slice(-1, None)])
def test_a_row_with_nan_has_no_values(size: int, bad: slice) -> None:
    """Even if other columns could be ranked: ``Pass.leading`` promises it."""
    row = np.arange(size, dtype=np.float32)
    row[bad] = np.nan
    ids, best = top(row, 8)
    assert len(ids) == 8
    assert np.isnan(best).all()
