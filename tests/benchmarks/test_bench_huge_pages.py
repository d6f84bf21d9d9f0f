"""The bench of huge pages: each run is a process, with them or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sections import huge_pages
from edgedec.errors import EdgedecError
from edgedec.models.demo import BUNDLE

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

linux = pytest.mark.skipif(not _SETTING.exists(), reason="a system without huge pages")


@linux
def test_a_run_says_what_it_took_and_off_has_none() -> None:
    found = huge_pages._run(BUNDLE, "CPUExecutionProvider", "none", "off")
    assert found["tpot_s"] > 0
    assert found["open_s"] > 0
    assert found["resident_bytes"] > 0
    if "[always]" not in _SETTING.read_text():  # else those of importing are counted
        assert found["huge_bytes"] == 0


@linux
def test_a_run_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(EdgedecError, match="huge pages on"):
        huge_pages._run(tmp_path / "nothing", "", "none", "on")


def test_ratios_are_of_one_turn() -> None:
    def run(tpot_s: float, open_s: float) -> huge_pages.Row:
        return {"tpot_s": tpot_s, "open_s": open_s, "huge_bytes": 2e6, "resident_bytes": 4e6}

    on = [run(1.0, 3.0), run(2.0, 3.5), run(9.0, 4.0)]
    off = [run(2.0, 2.0), run(4.0, 3.0), run(10.0, 3.0)]
    found = huge_pages.row("onnx", "auto", on, off)
    assert found["of_small_pages"] == 0.5
    assert found["longer_s"] == 1.0
    assert (found["huge_mb"], found["resident_mb"]) == (2.0, 4.0)
