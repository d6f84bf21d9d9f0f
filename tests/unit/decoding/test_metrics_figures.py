"""What a text's figures are computed from."""

from __future__ import annotations

import pytest

from edgedec.decoding.metrics import Metrics


def test_rates_of_a_text() -> None:
    metrics = Metrics()
    metrics.ttft_s, metrics.decode_s = 0.5, 2.0
    metrics.emitted, metrics.first_round = 44, 4
    assert metrics.tpot_s == pytest.approx(0.05)
    assert metrics.tokens_per_second == pytest.approx(20)
    metrics.emitted = 4  # all of them in the first round
    assert (metrics.tpot_s, metrics.tokens_per_second) == (0, 0)


def test_the_engines_time_is_what_the_models_leave() -> None:
    metrics = Metrics()
    metrics.rounds_s, metrics.draft_s, metrics.target_s = 3.0, 0.5, 2.25
    assert metrics.engine_s == pytest.approx(0.25)


def test_the_share_of_waiting_is_of_the_time_that_was_watched() -> None:
    metrics = Metrics()
    assert metrics.waited_share == 0
    metrics.ttft_s, metrics.decode_s, metrics.watched_s, metrics.waited_s = 0.5, 1.5, 1.0, 0.5
    assert metrics.waited_share == pytest.approx(0.25)  # no shorter than the text
    metrics.watched_s = 5.0
    assert metrics.waited_share == pytest.approx(0.1)
