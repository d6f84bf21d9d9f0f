"""Without a terminal, work that takes long prints a plain line every few seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgedec.cli import _progress
from edgedec.errors import InputError

Run = Callable[..., Any]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_is_printed_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_EVERY_S", 5.0)
    clock = Clock()
    lines = _progress.Lines(clock)
    for second in range(21):
        clock.now = 100 + second
        lines("target", second, 20)
    clock.now += 5
    lines("hashing\x1b[2J", 3, None)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "target: 25%", "target: 50%", "target: 75%", "target: 100%", "hashing?[2J",
    ]  # fmt: skip


def test_a_clock_that_stands_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The control: lines come with time, and not with work."""
    lines = _progress.Lines(Clock())
    for done in range(1000):
        lines("target", done, 1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["export", "pull", "run"])
def test_commands_that_convert_print_such_lines(
    run: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EDGEDEC_LIBRARY", str(tmp_path / "library"))
    draft = repository / "models" / "demo" / "draft"
    words = {
        "export": [draft, "--out", tmp_path / "bundle", "--calibration", "none"],
        "pull": [draft],
        "run": [draft, "def f(x):", "--raw", "-n", 2],
    }[command]
    monkeypatch.setattr(_progress, "_EVERY_S", 0.0)
    shown = run(command, *words)
    assert shown.exit_code == 0, shown.output
    shares = [int(found) for found in re.findall(r"^draft: (\d+)%$", shown.stderr, re.M)] or [
        int(found) for found in re.findall(r"^target: (\d+)%$", shown.stderr, re.M)
    ]
    assert shares == sorted(shares)
    assert len(shares) > 1
    assert shares[-1] == 100


def test_plan_prints_such_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object, on_progress: Callable[[str, int, int], None], **__: object) -> None:
        on_progress("target on onnx cpu", 1, 4)
        raise InputError("only asked")

    monkeypatch.setattr(_progress, "_EVERY_S", 0.0)
    monkeypatch.setattr("edgedec.planning.decisions.plan", measured)
    assert run("plan", "demo").stderr.splitlines()[0] == "target on onnx cpu: 25%"
