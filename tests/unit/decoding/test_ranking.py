"""The best of a row are those that sorting all of it would give."""

import numpy as np
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


def test_top_of_a_row_without_numbers() -> None:
    ids, _ = top(np.full(5000, np.nan, np.float32), 8)
    assert len(ids) == 8
