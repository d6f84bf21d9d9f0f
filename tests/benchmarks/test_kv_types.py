"""The comparison of types of keys and values, on tiny models whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gguf import write_tiny_gguf

from benchmarks.sections import kv_types
from edgedec.pipeline import Pipeline


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(_: Any, count: int) -> list[int]:
        return [3 + n % 80 for n in range(count)]

    monkeypatch.setattr(kv_types, "_TOKENS", 200)
    monkeypatch.setattr(kv_types, "_REPEATS", 2)
    monkeypatch.setattr(kv_types, "heldout_tokens", tokens)
    monkeypatch.setattr(kv_types, "long_text", tokens)


@pytest.mark.usefixtures("short")
def test_a_type_diverges_by_as_much_as_it_rounds(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    file = write_tiny_gguf(tmp_path / "a.gguf", context=512)
    opened = {
        name: Pipeline.open(file, drafter="none", plan="none", threads=1, kv=kind)
        for name, kind in (("f32", "f32"), ("again", "f32"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))
    }
    try:
        found = kv_types._diverged(opened)
        timed = kv_types._timed(opened)
    finally:
        for pipeline in opened.values():
            pipeline.close()
    kl = {name: row["kl_nats"] for name, row in found.items()}
    assert kl["f32"] == kl["again"] == 0
    assert found["again"]["same_first_choice"] == 1
    assert 0 < kl["q8_0"] < kl["q4_0"]
    assert all(np.isfinite(row["perplexity"]) for row in found.values())
    assert timed["f32"]["pass_over_1_of_first"] == 1
    assert set(timed) == set(opened)
