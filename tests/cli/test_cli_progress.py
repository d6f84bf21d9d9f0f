"""Without a terminal, work that takes long prints a plain line every few seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from kinds import in_full

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


def test_stages_at_the_same_time_are_one_line_that_grows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_EVERY_S", 0.0)
    lines = _progress.Lines(Clock())
    lines("target", 21, 100)
    for layer in range(1, 4):
        lines("target calibration", layer, 4)
        lines("target calibration", layer, 4)
        lines("target", 21, 100)
    lines("target parity", 1, 2)
    lines("calibration text", 0, 2)
    assert capsys.readouterr().err.splitlines() == [
        "target: 21%", "target calibration: 25%", "target calibration: 50%",
        "target calibration: 75%", "target parity: 50%", "calibration text: 0%",
    ]  # fmt: skip
    lines("target", 0, 100)
    lines("target", 1, 100)
    again = capsys.readouterr().err.splitlines()
    assert again == ["target: 0%", "target: 1%"], "the control: a stage that begins again is shown"


def test_a_clock_that_stands_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The control: lines come with time, and not with work."""
    lines = _progress.Lines(Clock())
    for done in range(1000):
        lines("target", done, 1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", in_full(["export", "pull", "run"]))
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
    found = re.findall(r"^((?:draft|target)[a-z ]*): (\d+)%$", shown.stderr, re.M)
    by_stage = {
        stage: [int(share) for _, share in lines]
        for stage, lines in groupby(found, key=itemgetter(0))
    }
    assert len(by_stage) == len(list(groupby(found, key=itemgetter(0)))), "no stage comes back"
    for shares in by_stage.values():
        assert shares == sorted(set(shares))
    assert len(found) > 3


def test_plan_prints_such_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object, on_progress: Callable[[str, int, int], None], **__: object) -> None:
        on_progress("target on onnx cpu", 1, 4)
        raise InputError("only asked")

    monkeypatch.setattr(_progress, "_EVERY_S", 0.0)
    monkeypatch.setattr("edgedec.planning.decisions.plan", measured)
    assert run("plan", "demo").stderr.splitlines()[0] == "target on onnx cpu: 25%"
