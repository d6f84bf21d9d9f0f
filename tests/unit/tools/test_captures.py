"""The tool that draws terminal captures: what a terminal shows, and nothing of this machine."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.text import Text

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def captures() -> ModuleType:
    pytest.importorskip("pyte")
    spec = importlib.util.spec_from_file_location("captures", ROOT / "tools" / "captures.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_what_is_overwritten_is_not_shown(captures: ModuleType) -> None:
    written = [
        b"loading 10%\rloading 90%\r\n",
        b"one\r\ntwo\r\n\x1b[2A\x1b[2KONE\r\n\x1b[32mtw\x1b[0mo",
    ]
    lines = captures.screen(written, 40)
    assert plain(lines) == ["loading 90%", "ONE", "two"]
    assert any("green" in str(span.style) for span in lines[2].spans)


def test_a_part_of_the_output_ends_with_a_whole_picture(captures: ModuleType) -> None:
    frames = [b"\r\x1b[2Kfirst picture", b"\r\x1b[2Ksecond picture", b"\r\x1b[2Kthird picture"]
    assert plain(captures.screen(frames, 40, 0.6)) == ["first picture"]
    assert plain(captures.screen(frames, 40)) == ["third picture"]


def test_a_drawing_needs_nothing_from_anywhere(captures: ModuleType) -> None:
    drawn = captures.draw([Text("a < b", "bold")], "edgedec a", "edgedec a", 80)
    assert re.findall(r"(?:https?:)?//[^\s\"']+", drawn) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in drawn
    assert "a&#160;&lt;&#160;b" in drawn
    assert len(drawn) < 10_000
    # What it refers to is there.
    for name in set(re.findall(r"url\(#([^)]*)\)", drawn)):
        assert f'id="{name}"' in drawn


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_path_of_this_machine_is_refused(
    captures: ModuleType, tmp_path: Path, wrapped: bool
) -> None:
    path = f"records in {tmp_path}/records"
    lines = [Text(path[:30]), Text(path[30:])] if wrapped else [Text(path)]
    with pytest.raises(SystemExit, match="a capture shows"):
        captures.check(lines, tmp_path)
    captures.check([Text("records in records")], tmp_path)


def test_a_command_runs_in_a_terminal_of_its_width(captures: ModuleType, tmp_path: Path) -> None:
    pieces = captures.run(captures.Capture("help", ("--help",)), 80, tmp_path)
    shown = plain(captures.screen(pieces, 80))
    assert shown[0].startswith("Usage: ")
    assert max(map(len, shown)) <= 80


def test_a_command_that_fails_is_no_capture(captures: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="edgedec generate --nonsense: ended with 2"):
        captures.run(captures.Capture("wrong", ("generate", "--nonsense")), 80, tmp_path)
