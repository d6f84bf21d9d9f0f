"""Names and texts beyond ASCII, under locales that do not have them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import kinds
import pytest

from edgedec import Pipeline
from edgedec._support.model_path import utf8
from edgedec.cli._values import text
from edgedec.errors import BundleError

LOCALES = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii output": {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    },
    "latin-1 output": {"PYTHONIOENCODING": "latin-1"},
    "utf-8": {"PYTHONUTF8": "1"},
}
PROMPT = "def é名():"


@pytest.fixture(params=kinds.in_full(LOCALES))
def ask(request: pytest.FixtureRequest, start: Callable, tmp_path: Path) -> Callable:
    """Run the command line under a locale; exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        environment = {**os.environ, **LOCALES[request.param]}
        environment.pop("LC_CTYPE", None)
        child = start(*args, env=environment, cwd=tmp_path)
        out, err = child.communicate(b"", timeout=120)
        assert b"Traceback" not in err, err.decode()
        return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    return run


@pytest.fixture
def named(bundle: Path, tmp_path: Path) -> str:
    """A bundle whose folder has a name in no 8-bit code; relative, as a user gives it."""
    shutil.copytree(bundle, tmp_path / "bündel-名")
    return "bündel-名"


def test_generate_and_inspect(ask: Callable, named: str, run: Callable, bundle: Path) -> None:
    code, out, err = ask("generate", named, PROMPT, "-n", 6, "--json")
    assert code == 0, err
    expected = run("generate", bundle, PROMPT, "-n", 6, "--json").stdout
    for name in ("token_ids", "prompt_tokens"):  # the prompt's characters arrived
        assert json.loads(out)[name] == json.loads(expected)[name]
    for command in (["inspect", named], ["inspect", named, "--json"]):
        assert ask(*command)[0] == 0
    code, _, err = ask("inspect", "nicht-名")
    assert code == 2
    assert "is not a file or folder here" in err


def test_verify(ask: Callable, named: str) -> None:
    code, out, err = ask("verify", named, "--count", 1, "-n", 4)
    assert code == 0, err
    assert "holds" in out


@pytest.mark.full
def test_export(ask: Callable, checkpoints: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoints / "target", tmp_path / "chéck-名")
    code, _, err = ask("export", "chéck-名", "--out", "aüs-名", "--weights", "fp32")
    assert code == 0, err
    assert ask("generate", "aüs-名", "é", "-n", 2)[0] == 0


@pytest.mark.parametrize("command", [["generate", "demo", "x", "--plan"], ["generat"]])
def test_a_missing_name_is_one_line(ask: Callable, command: list[str]) -> None:
    code, _, err = ask(*command, "nö名")
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("edgedec: error: ")


def test_texts_of_another_locale_are_read_as_utf8() -> None:
    escaped = PROMPT.encode().decode("ascii", "surrogateescape")
    assert text(escaped) == PROMPT
    assert text(PROMPT) == PROMPT
    broken = b"ab\xff".decode("utf-8", "surrogateescape")
    assert text(broken) == broken  # refused later, by name


def test_paths_of_another_locale_are_utf8_for_libraries() -> None:
    assert utf8(Path("bündel-名")) == "bündel-名"
    with pytest.raises(UnicodeDecodeError):
        utf8("ab\udcff")


def test_a_bundle_whose_path_is_not_utf8_is_refused_by_name(bundle: Path, tmp_path: Path) -> None:
    named = tmp_path / os.fsdecode(b"ab\xff")
    shutil.copytree(bundle, named)
    with pytest.raises(BundleError, match="paths in UTF-8 only"):
        Pipeline.open(named)
