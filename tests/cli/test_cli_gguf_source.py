"""A GGUF file as a source: of ``export``, and with ``--format onnx`` of ``run`` and ``pull``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_gguf import write_tiny_gguf

import edgedec
from edgedec.bundle import Bundle
from edgedec.library import Library

pytestmark = pytest.mark.usefixtures("library")
Run = Callable[..., Any]
ONNX = ("--format", "onnx", "--weights", "int8")
ASKED = ("abba", "--raw", "-n", 8, "--temperature", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny-q8_0.gguf", weights="Q8_0")


def test_run_makes_a_bundle_of_it_once(run: Run, file: Path, library: Library) -> None:
    first = run("run", file, *ASKED, *ONNX)
    assert first.exit_code == 0, first.output
    assert "into a bundle (int8)" in first.stderr
    assert first.stderr.count("its weights were Q8_0 already") == 1
    (model,) = library.models()
    assert (model.name, model.record.origin.where) == ("tiny-q8_0", str(file))
    again = run("run", file, *ASKED, *ONNX)
    assert again.stdout == first.stdout
    assert "into a bundle" not in again.stderr
    assert run("run", "tiny-q8_0", *ASKED).stdout == first.stdout


def test_the_python_interface_does_too(file: Path, library: Library) -> None:
    made = edgedec.pull(file, weights="int8", format="onnx")
    assert made.id == library.models()[0].id
    with edgedec.Pipeline.open(file, format="onnx", drafter="none") as pipeline:
        own = pipeline.generate("abba", max_new_tokens=8).token_ids
    with edgedec.Pipeline.open(made.path, drafter="none") as pipeline:
        assert pipeline.generate("abba", max_new_tokens=8).token_ids == own
    assert len(library.models()) == 1


def test_pull_takes_the_option(run: Run, file: Path, library: Library) -> None:
    found = run("pull", file, *ONNX, "--name", "mine")
    assert found.exit_code == 0, found.output
    assert [model.name for model in library.models()] == ["mine"]


def test_how_weights_are_stored_is_for_a_bundle(run: Run, file: Path, library: Library) -> None:
    refused = run("run", file, "abba", "--weights", "int8")
    assert refused.exit_code == 2
    assert "--format onnx makes a bundle of it" in refused.stderr
    assert library.models() == []


def test_both_models_of_a_bundle_may_be_files(run: Run, file: Path, tmp_path: Path) -> None:
    draft = write_tiny_gguf(tmp_path / "draft.gguf", layers=1, seed=4)
    out = tmp_path / "out"
    found = run("export", file, "--draft", draft, "--out", out, "--weights", "int8", "--json")
    assert found.exit_code == 0, found.output
    opened = Bundle.open(out)
    assert [role.source for role in opened.roles] == ["tiny-q8_0", "draft"]
    reports = json.loads(found.stdout)["models"]
    notes = {report["role"]: report["notes"] for report in reports}
    assert any("Q8_0 already" in note for note in notes["target"])
    assert not any("already" in note for note in notes["draft"])


def test_inspect_says_whether_it_can_be_one(run: Run, file: Path, tmp_path: Path) -> None:
    assert "to onnx and coreml" in run("inspect", file).stdout
    other = write_tiny_gguf(tmp_path / "other.gguf", "mamba")
    assert "not of this architecture" in run("inspect", other).stdout


def test_a_file_of_another_architecture_is_refused(run: Run, tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", "mamba")
    refused = run("export", other, "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "architecture 'mamba' cannot be read back" in refused.stderr
    assert not (tmp_path / "out").exists()
