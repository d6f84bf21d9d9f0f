"""``--system @FILE``: a system message from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from edgedec.cli import _config
from edgedec.cli._sampling import system_text

Run = Callable[..., Any]
TEXT = "Be brief.\nÄrger: nein."


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "instructions.txt"
    path.write_text(TEXT + "\n", "utf-8")
    return path


def answered(run: Run, command: str, bundle: Path, *words: str) -> tuple[str, int]:
    told = run(
        command, bundle, "Hi", *words, "--temperature", 0, "--drafter", "none", "-n", 6, "--json"
    )
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    return found["text"], found["prompt_tokens"]


@pytest.mark.parametrize("command", ["run", "generate"])
def test_the_file_is_the_text(run: Run, bundle: Path, file: Path, command: str) -> None:
    given = answered(run, command, bundle, "--system", f"@{file}")
    assert given == answered(run, command, bundle, "--system", TEXT)
    literal = answered(run, command, bundle, "--system", f"@@{file}")  # the control
    assert literal != given


def test_in_a_chat(run: Run, bundle: Path, file: Path) -> None:
    lines = f"/show\n/system @@home\n/show\n/system @{file}\n/show\n/system @{file}.no\n"
    told = run("chat", bundle, "--system", f"@{file}", "--drafter", "none", stdin=lines)
    assert told.exit_code == 0, told.output
    shown = [line.split(None, 1)[1] for line in told.stderr.splitlines() if line[:6] == "system"]
    once = TEXT.replace("\n", " ")
    assert [one.replace("?", " ") for one in shown] == [once, "@home", once]
    assert told.stderr.splitlines()[-1].startswith(f"/system: {file}.no: No such file")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "No such file or directory: expected a file with the system message"),
        (b"a\xff", "is not UTF-8 at byte 1"),
        (b" \n", "is empty"),
        (b"a" * (1 << 20) + b"b", "expected at most 1 MiB"),
    ],
)
def test_a_file_that_is_none(
    run: Run, one_line: Callable[..., str], tmp_path: Path, data: bytes | None, said: str
) -> None:
    path = tmp_path / "given"
    if data is not None:
        path.write_bytes(data)
    assert said in one_line(run("run", "nowhere", "Hi", "--system", f"@{path}"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="expected a file with the system message"):
        system_text(f"@{tmp_path}")


def test_a_setting_keeps_the_text(run: Run, bundle: Path, file: Path) -> None:
    assert run("config", "set", "system", f"@{file}").exit_code == 0
    assert _config.read()["system"] == TEXT
    by_setting = answered(run, "run", bundle)
    assert by_setting == answered(run, "run", bundle, "--system", TEXT)
    assert run("config", "set", "system", "@@home").exit_code == 0
    assert _config.read()["system"] == "@home"
    answered(run, "run", bundle)  # which takes it as it stands: there is no such file
    run("config", "unset", "system")
