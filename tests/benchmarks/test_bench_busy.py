"""The bench of a busy machine leaves nothing running behind, and says what failed."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sections import busy
from edgedec.errors import EdgedecError


def test_busy_processes_end_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **more))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with contextlib.suppress(ZeroDivisionError), busy.others(2):
        assert [process.poll() for process in started] == [None, None]
        raise ZeroDivisionError
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_run_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(EdgedecError, match=r"a setting: .*is not a file or folder"):
        busy.decode(busy.WaitSetting("a setting", "onnx"), tmp_path / "nothing-here")


def test_a_run_tells_what_it_measured() -> None:
    found = busy.decode(busy.WaitSetting("shipped", "onnx", spin_us="10"), Path("demo"))
    assert found["tpot_s"] > 0
    assert 0 <= found["waited_share"] <= 1.5


def test_a_row_is_the_median_turn() -> None:
    seconds = {("a", 0): [0.1, 0.2, 9.0], ("a", 2): [0.5]}
    assert busy._row("a", seconds) == {
        "setting": "a",
        "tokens_per_second_alone": 5.0,
        "tokens_per_second_with_others": 2.0,
    }
