"""Names in the library, on the command line: one's own, two models of one, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgedec._support.model_path import OWN_DRAFT
from edgedec.library import Library

LENGTH = ["-n", 2, "--raw"]
pytestmark = pytest.mark.usefixtures("library", "exports_once")
Run = Callable[..., Any]


@pytest.fixture
def draft(repository: Path) -> Path:
    return repository / "models" / "demo" / "draft"


def names(run: Run) -> list[str]:
    return [one["name"] for one in json.loads(run("list", "--json").stdout)["models"]]


def test_a_model_has_the_name_that_it_is_given(run: Run, draft: Path) -> None:
    assert run("pull", draft, "--name", "small").exit_code == 0
    assert names(run) == ["small"]
    assert run("run", draft, "def f(x):", "--name", "mine", *LENGTH).exit_code == 0
    assert names(run) == ["mine", "small"]
    shown = [run("run", name, "def f(x):", *LENGTH).stdout for name in names(run)]
    assert shown[0] == shown[1]


def test_rm_never_removes_two_at_once(
    run: Run, one_line: Callable[..., str], draft: Path, library: Library
) -> None:
    run("pull", draft)
    run("pull", draft, "--weights", "int8")
    line = one_line(run("rm", "draft"))
    assert "draft is one model in two forms: " in line
    assert line.endswith("give the id of one instead of the name")
    assert all(model.id[:8] in line for model in library.models())
    assert names(run) == ["draft", "draft"]
    assert run("rm", library.models()[0].id[:8]).exit_code == 0
    assert run("rm", "draft").exit_code == 0
    assert names(run) == []


@pytest.mark.parametrize("command", ["run", "generate"])
def test_a_target_that_is_its_own_draft_is_remarked_on(run: Run, draft: Path, command: str) -> None:
    run("pull", draft)
    words = [command, draft, "def f(x):", "-n", 2, "--draft"]
    for word in (draft, "draft"):
        assert f"warning: {OWN_DRAFT}" in run(*words, word).stderr
    assert OWN_DRAFT not in run(*words, "demo").stderr


def test_pull_says_what_comes_next(run: Run, draft: Path) -> None:
    assert run("pull", draft).stderr.splitlines()[-1] == "next: edgedec chat draft"
    assert "next:" not in run("pull", draft, "--json").stderr


@pytest.mark.full
def test_export_says_in_words_how_close_it_is_and_what_comes_next(
    run: Run, draft: Path, tmp_path: Path
) -> None:
    out = tmp_path / "my bundle"
    words = ["export", draft, "--out", out, "--calibration", "none", "--overwrite"]
    shown = run(*words)
    assert shown.exit_code == 0, shown.output
    assert "close enough to its source for most uses" in shown.stdout
    assert "KL" not in shown.stdout
    rounded = "weights are rounded to nearest; --calibrated takes minutes and is closer or smaller"
    assert shown.stderr.splitlines()[0] == f"making {draft} into a bundle: {rounded}"
    assert shown.stderr.splitlines()[-1] == f"next: edgedec chat '{out}'"
    more = run(*words, "-v").stdout
    assert "parity: " in more
    assert "closeness to its source: usable (KL" in more
    assert "not compared with its source" in run(*words, "--no-parity").stdout
    finer = run(*words, "--weights", "int8").stdout
    assert "close to its source, whose texts are hardly to be told from its own" in finer
    other = run("export", draft, "--out", tmp_path / "genai", "--layout", "genai", "--no-parity")
    assert (other.exit_code, "next:" in other.stderr) == (0, False), other.output


@pytest.mark.full
def test_export_says_how_often_a_head_is_right(run: Run, repository: Path, tmp_path: Path) -> None:
    demo = repository / "models" / "demo"
    words = [demo / "target", "--head", demo / "head", "--out", tmp_path / "out"]
    shown = run("export", *words, "--no-calibrated")
    assert shown.exit_code == 0, shown.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    share = manifest["roles"]["head"]["variants"]["onnx"]["parity"]["agreement_1"]
    assert 0 < share < 1
    assert f"its first choice is the target's {share:.0%} of the time" in shown.stdout
