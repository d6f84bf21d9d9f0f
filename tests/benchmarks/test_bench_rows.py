"""The count of rows with the bits of a row alone, on kernels whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_gguf import write_tiny_gguf

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import rows
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.tree import FloatArray


def test_rows_that_depend_on_their_pass_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    from edgedec.runtimes.llamacpp.context import Context

    honest = Context.logits

    def logits(self: Context, count: int) -> FloatArray:
        """Every row alike, but the last one of eight or more."""
        found = np.zeros_like(honest(self, count))
        found[-1, 0] = count >= 8
        return found

    monkeypatch.setattr(Context, "logits", logits)
    monkeypatch.setattr(rows, "_REPEATS", 2)
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0")
    suite = Suite(Bundles(tmp_path, tmp_path, {"target": file}), tmp_path, 1, threads=1)
    records: list[Row] = []
    found = rows.rows_by_width(suite, Recorder(records.append, "rows_by_width"))
    assert [row["repacked"] for row in found] == [True] * 4 + [False] * 3
    assert {row["context"] for row in found} == {100}, "1000 tokens do not fit"
    for row in found:
        shares = [row[f"same_{width}"] for width in (2, 7, 8, 16, 32)]
        assert shares == [1, 1, 7 / 8, 15 / 16, 31 / 32]
        assert row["cost_8"] > 0
    assert found[0]["way"] == "usual"
    assert [found[0][f"cost_{width}"] for width in (1, 2, 4, 8, 128)] == [1] * 5
    raw = [one for one in records if one["kind"] == "rows"]
    assert len(raw) == len(found)
    assert all(len(one["seconds"][1]) == 2 for one in raw)
