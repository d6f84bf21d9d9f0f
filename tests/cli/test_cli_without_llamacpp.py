"""A GGUF file where llama.cpp is not installed: the error names what works at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_files
import pytest

from edgedec import Pipeline
from edgedec._support import installation
from edgedec.errors import ExtraMissing
from edgedec.runtimes import registry

HOW = '; or --format onnx, in Python format="onnx", works with what is installed'


def model(folder: Path, architecture: str) -> Path:
    entries = {"general.architecture": architecture, f"{architecture}.context_length": 64}
    return gguf_files.write(folder / "m.gguf", entries, (gguf_files.f32("a", 4),))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the adapter of llama.cpp cannot be imported."""
    adapter = registry.adapter

    def found(name: str) -> Any:
        if name == "llamacpp":
            raise ExtraMissing(installation.needs("the runtime", "gguf", "llama_cpp"))
        return adapter(name)

    monkeypatch.setattr(registry, "adapter", found)


@pytest.mark.usefixtures("without")
def test_the_format_that_works_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExtraMissing) as caught:
        Pipeline.open(model(tmp_path, "llama"))
    assert HOW in str(caught.value)
    assert "pip install" in str(caught.value)


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("command", ["run {} hi", "generate {} hi", "serve {}", "chat {}"])
def test_each_command_says_it(run: Callable[..., Any], tmp_path: Path, command: str) -> None:
    file = model(tmp_path, "llama")
    told = run(*shlex.split(command.format(file)))
    assert told.exit_code == 2
    assert HOW in told.stderr


@pytest.mark.usefixtures("without")
def test_not_where_it_would_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls: an architecture that is not read back, and no exporter."""
    with pytest.raises(ExtraMissing) as caught:
        Pipeline.open(model(tmp_path, "mamba"))
    assert HOW not in str(caught.value)
    monkeypatch.setattr(installation, "missing", lambda extra: ["onnx"])
    with pytest.raises(ExtraMissing) as caught:
        Pipeline.open(model(tmp_path, "llama"))
    assert HOW not in str(caught.value)
