"""The counts of `.ci/run`: failures run once more alone, and what passes then is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
TESTS = """
from pathlib import Path

import pytest

TRIED = Path(__file__).with_name("tried")

def test_holds(): pass

@pytest.mark.skip
def test_skipped(): pass

@pytest.mark.parametrize("word", ["a b[]"])
def test_by_chance(word):
    seen = TRIED.exists()
    TRIED.touch()
    assert seen

@pytest.mark.parametrize("word", ["a b[]"])
def test_never(word):
    assert word != "a b[]"

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_ends_badly(broken):
    assert False
"""


def run(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "cache_dir=kept", *arguments, "test_it.py"],
        cwd=folder, check=False, capture_output=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # which imports for a second
    )  # fmt: skip


def summary(folder: Path, failed_steps: int = 0) -> tuple[int, list[str]]:
    command = [sys.executable, REPOSITORY / ".ci" / "summary.py", str(failed_steps)]
    done = subprocess.run(
        [*command, folder / "tests.xml", folder / "missing.xml"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    run(tmp_path, "--junitxml=tests.xml")
    return tmp_path


def test_what_fails_is_counted(folder: Path) -> None:
    code, lines = summary(folder)
    assert code == 1
    assert lines[-1] == "1 passed, 4 failed, 1 skipped"
    assert not any("alone" in line for line in lines)


@pytest.mark.full
def test_what_passes_alone_is_named_and_what_fails_twice_fails(folder: Path) -> None:
    run(folder, "--junitxml=tests-again.xml", "--last-failed")
    code, lines = summary(folder)
    assert code == 1
    assert lines[-2:] == [
        "failed, and passed when it ran again alone: test_it.py::test_by_chance[a b[]]",
        "2 passed, 3 failed, 1 skipped",
    ]


@pytest.mark.full
def test_all_that_holds_at_last_is_a_pass(folder: Path) -> None:
    chosen = "holds or chance"
    run(folder, "--junitxml=tests.xml", "-k", chosen)
    assert summary(folder)[0] == 0
    (folder / "tried").unlink()
    run(folder, "--junitxml=tests.xml", "-k", chosen)
    assert summary(folder)[0] == 1
    run(folder, "--junitxml=tests-again.xml", "-k", chosen, "--last-failed")
    assert summary(folder)[0] == 0
    assert summary(folder, failed_steps=1)[0] == 1
    run(folder, "--junitxml=tests-again.xml", "-k", "holds")  # the control: it did not run again
    assert summary(folder)[0] == 1


@pytest.mark.full
def test_what_no_time_was_left_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hook of every test here; the control has time."""
    (tmp_path / "test_it.py").write_text("def test_one(): pass\n\ndef test_two(): pass\n")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "tests" / "support"))
    told = "not run, for no time was left: 2 tests of the suite tests"
    for until, last in (
        (0, "0 passed, 0 failed, 2 skipped"),
        (2**40, "2 passed, 0 failed, 0 skipped"),
    ):
        run(tmp_path, "-p", "time_left", f"--until={until}", "--junitxml=tests.xml")
        lines = summary(tmp_path)[1]
        assert lines[-1] == last
        assert (told in lines) == (until == 0)
