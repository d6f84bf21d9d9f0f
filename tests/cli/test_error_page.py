"""docs/errors.md: every wrong use in it is run, and prints what stands there."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edgedec.cli import main


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    sys.path.insert(0, str(repository / "tools"))
    try:
        return importlib.import_module("wrong_uses_page")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def page(tool: ModuleType) -> str:
    return str(tool.page())


def test_the_page_is_what_is_printed(page: str, repository: Path) -> None:
    assert page == (repository / "docs" / "errors.md").read_text("utf-8"), "make help-pages"


def test_it_covers_every_command_and_python(page: str) -> None:
    commands = re.findall(r"^\| `edgedec (\w+)", page, re.MULTILINE)
    assert set(main.commands if main.commands else main.list_commands(None)) <= set(commands)
    rows = re.findall(r"^\| `.*\| (?:\d|`\w+`) \| `", page, re.MULTILINE)
    assert len(rows) >= 80
    assert len([row for row in rows if "ipeline" in row]) >= 15


def test_it_says_nothing_of_the_machine(page: str) -> None:
    assert str(Path.home()) not in page
    assert "/tmp" not in page
    assert "site-packages" not in page


@pytest.mark.parametrize("words", [["doctor"], ["--help"], ["generate", "x", "-n", "2"]])
def test_a_use_that_is_right_would_be_seen(tool: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="expected one line of error"):
        tool.run(words)
