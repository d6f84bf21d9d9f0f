"""The block that an owner of a board pastes holds what was measured there."""

from __future__ import annotations

import re

import pytest

from benchmarks import board
from edgedec.hardware.strain import Strain
from edgedec.models.demo.heldout import heldout_prompts


def test_a_block_of_the_demo_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([Strain("", 50.0), Strain("heat", 81.6, 84_000_000)])
    monkeypatch.setattr(board, "strain", lambda: next(states))
    monkeypatch.setattr(board, "_TOKENS", 16)
    monkeypatch.setattr(board, "_SWEEP_S", 0.01)
    monkeypatch.setattr(board, "by_others", lambda before, after: 0.4)
    prompts = [(one.name, one.text) for one in heldout_prompts(2)]
    done: list[tuple[int, int]] = []

    lines = board.bench_report("demo", prompts, lambda *counts: done.append(counts))
    found = dict(lines)
    passes = [text for name, text in lines if not name]

    assert done[-1][0] == done[-1][1] >= 4
    assert {"edgedec", "processor", "memory", "target", "draft", "texts", "peak"} <= set(found)
    assert len(passes) == 2
    for text in passes:
        times = re.fullmatch(r"passes of ([\d/]+) rows: (.*) ms", text)
        assert times is not None
        widths, ms = times[1].split("/"), [float(one) for one in times[2].split(", ")]
        assert len(widths) == len(ms) >= 4
        assert min(ms) > 0
    assert re.match(r"of 16 tokens: [\d.]+ tokens/s plain, [\d.]+ with hybrid", found["texts"])
    assert (found["heat"], found["slowed"]) == ("50 °C before, 82 °C after", "by heat, after")
    assert found["in swap"] == "84.0 MB"
    assert found["busy"] == "other programs used 40% of the processor's time"
    shown = board.block(lines)
    assert shown.startswith("```\npython -m benchmarks board\n")
    assert "\nheat      50 °C before" in shown
