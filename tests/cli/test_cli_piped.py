"""Text that is piped in beside a prompt, and a question for the configured model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kinds import in_full

from edgedec.cli import generate

Generate = Callable[..., dict[str, Any]]


def piped(*words: object, **options: Any) -> dict[str, Any]:
    """Return what `edgedec generate --json` says, with a standard input of its own."""
    command = [sys.executable, "-m", "edgedec", "generate", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "said": done.stderr.decode()}


def prompt_tokens(bundle: Path, text: str) -> int:
    from edgedec import Pipeline

    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        return len(pipeline.tokenizer.encode(text))


@pytest.mark.parametrize("kind", in_full(["pipe", "file"]))
def test_piped_text_stands_before_the_prompt(bundle: Path, tmp_path: Path, kind: str) -> None:
    words = ("--bundle", bundle, "def f(", "-n", 8, "--threads", 1)
    text = tmp_path / "text"
    text.write_text("import os\n")
    with text.open("rb") as file:
        given: dict[str, Any] = {"stdin": file} if kind == "file" else {"input": b"import os\n"}
        both = piped(*words, **given)
    joined = piped("--bundle", bundle, "import os\n\ndef f(", *words[3:], input=b"")
    alone = piped(*words, input=b"")
    assert both["token_ids"] == joined["token_ids"]
    assert both["prompt_tokens"] == joined["prompt_tokens"] > alone["prompt_tokens"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_pipe_without_text_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    """As an editor leaves it; the control is one that has a text."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "r") as stdin, os.fdopen(theirs, "w") as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
        assert generate.prompt_text("def f(") == "def f("
        assert ("nothing came from it in time" in capsys.readouterr().err) == terminal
        writer.write("import os\n")
        writer.close()
        assert generate.prompt_text("def f(") == "import os\n\ndef f("


def test_a_question_alone_is_for_the_configured_model(
    run: Callable[..., Any], bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    monkeypatch.setenv("EDGEDEC_CONFIG", str(config))
    words = ["run", "Why is the sky", "-n", 2, "--raw"]
    refused = run(*words)
    assert refused.exit_code != 0  # the control: no model is configured
    assert run("config", "set", "model", bundle).exit_code == 0
    asked = run(*words)
    assert asked.exit_code == 0, asked.output
    assert asked.stdout == run("run", bundle, *words[1:]).stdout
