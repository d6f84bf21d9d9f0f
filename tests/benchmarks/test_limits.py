"""The machine's limit: least times, and operators' times by kind."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.sections.limits import PASSES, Machine, Work, _by_kind

MACHINE = Machine(bandwidth=1e10, peak=1e11)


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.03), (2, 0.03), (4, 0.04), (8, 0.08)], ids=str)
def test_a_pass_takes_at_least_its_reading_and_its_arithmetic(rows: int, seconds: float) -> None:
    work = Work(weight_bytes=300_000_000, operations=1e9)
    assert work.least_s(rows, MACHINE) == pytest.approx(seconds)


def passes(attention: list[int]) -> list[dict[str, Any]]:
    """Profiles of passes: product, attention, product, sum, head; 10 us between operators."""
    events: list[dict[str, Any]] = []
    at = 0
    for attention_us in attention:
        begin = at
        for op, dur in (
            ("MatMulNBits", 100), ("GroupQueryAttention", attention_us), ("MatMulNBits", 200),
            ("Add", 5), ("MatMulNBits", 50), ("TopK", 7),
        ):  # fmt: skip
            event = {"name": f"{op}_kernel_time", "cat": "Node", "args": {"op_name": op}}
            events.append({**event, "ts": at, "dur": dur})
            at += dur + 10
        events.append({"name": "model_run", "cat": "Session", "ts": begin, "dur": at - begin})
    return events


def test_operators_are_counted_by_kind_in_the_last_half_of_the_passes() -> None:
    seconds, spent = _by_kind(passes([999] * (PASSES // 2 + 1) + [40] * (PASSES // 2)))
    assert seconds == pytest.approx((100 + 40 + 200 + 5 + 50 + 7 + 60) / 1e6)
    expected = {"layers": 300e-6, "head": 50e-6, "attention": 40e-6, "other": 12e-6}
    assert spent == pytest.approx(expected)
