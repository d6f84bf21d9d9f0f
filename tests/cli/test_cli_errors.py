"""What becomes one line and an exit code, and what stays a traceback."""

import errno
import subprocess
import sys

import click
import pytest

from edgedec.cli._group import one_line_errors


def ended(error: BaseException) -> int:
    with pytest.raises(click.exceptions.Exit) as caught, one_line_errors():
        raise error
    return caught.value.exit_code


@pytest.fixture(autouse=True)
def no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEDEC_DEBUG", raising=False)


def test_an_interrupt_while_a_compiled_module_starts(capsys) -> None:
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    assert ended(error) == 130
    assert capsys.readouterr().err == "edgedec: error: interrupted\n"


def test_another_failed_import_shows_where_it_comes_from() -> None:
    with pytest.raises(ImportError, match="no such module"), one_line_errors():
        raise ImportError("no such module")


def test_a_full_disk_says_which_and_what_to_do(capsys) -> None:
    assert ended(OSError(errno.ENOSPC, "No space left on device", "records.jsonl")) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("edgedec: error: records.jsonl: No space left")
    assert "make room" in shown


def test_other_system_errors_give_no_advice_about_room(capsys) -> None:
    assert ended(OSError(errno.EACCES, "Permission denied", "records.jsonl")) == 2
    assert capsys.readouterr().err == "edgedec: error: records.jsonl: Permission denied\n"


INTERRUPTED_AT_IMPORT = """
import runpy, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
runpy.run_module("edgedec", run_name="__main__")
"""


def test_an_interrupt_while_the_commands_are_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "edgedec: error: interrupted\n")
