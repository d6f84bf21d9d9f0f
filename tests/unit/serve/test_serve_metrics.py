"""Each figure of /metrics is that of the texts that ended: all numbers differ here."""

from __future__ import annotations

from types import SimpleNamespace as Stub
from typing import Any

import pytest

from edgedec.serve.metrics import ServerMetrics

ONE = {
    "reused_tokens": 3, "emitted": 41, "drafted_tokens": 29, "accepted_tokens": 17,
    "target_passes": 23, "first_round": 1,
}  # fmt: skip
FIGURES = {
    "edgedec_prompt_tokens_total": 7, "edgedec_reused_tokens_total": 3,
    "edgedec_generated_tokens_total": 41, "edgedec_drafted_tokens_total": 29,
    "edgedec_accepted_tokens_total": 17, "edgedec_target_passes_total": 23,
    "edgedec_acceptance_rate": 17 / 29, "edgedec_block_efficiency": 41 / 23,
    "edgedec_ttft_seconds_sum": 0.5, "edgedec_ttft_seconds_count": 1,
    "edgedec_tpot_seconds_sum": 2 / 40, "edgedec_tpot_seconds_count": 1,
}  # fmt: skip


def finished(metrics: ServerMetrics, **ticket: Any) -> dict[str, float | None]:
    ended = Stub(**{"choice": 0, "began": 10.0, "first_at": 10.5, "last_at": 12.5, **ticket})
    result = Stub(metrics=Stub(**ONE), finish_reason="length", prompt_tokens=7)
    metrics.finished(ended, result)  # type: ignore[arg-type]
    return {name: metrics.registry.get_sample_value(name) for name in FIGURES}


def test_of_one_text() -> None:
    metrics = ServerMetrics(None)
    assert finished(metrics) == pytest.approx(FIGURES)
    ended = metrics.registry.get_sample_value("edgedec_texts_total", {"finish_reason": "length"})
    assert ended == 1


def test_a_further_choice_of_a_request_has_no_first_token_of_its_own() -> None:
    metrics = ServerMetrics(None)
    finished(metrics)
    found = finished(metrics, choice=1)
    assert found["edgedec_ttft_seconds_count"] == 1
    assert found["edgedec_tpot_seconds_count"] == 2
    assert found["edgedec_generated_tokens_total"] == 82


def test_a_text_without_a_token_has_no_times() -> None:
    found = finished(ServerMetrics(None), first_at=None, last_at=None)
    assert found["edgedec_ttft_seconds_count"] == found["edgedec_tpot_seconds_count"] == 0
