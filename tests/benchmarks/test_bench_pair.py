from __future__ import annotations

import pytest

from edgedec.compare.side_by_side import repeated_share


def test_a_text_without_repeats_has_none() -> None:
    assert repeated_share(list(range(40))) == 0.0


def test_a_loop_repeats_nearly_everything() -> None:
    # 33 windows of 8, of which a loop of 4 tokens has 4 different ones.
    assert repeated_share([1, 2, 3, 4] * 10) == pytest.approx(29 / 33)


def test_what_is_repeated_must_be_as_long_as_the_window() -> None:
    text = [*range(7), 99, *range(7), 98]
    assert repeated_share(text) == 0.0
    assert repeated_share(text, n=7) == pytest.approx(1 / 10)


def test_a_text_shorter_than_the_window_has_none() -> None:
    assert repeated_share([1, 1, 1]) == 0.0
