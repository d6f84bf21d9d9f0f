"""What the page says about the way of drafting, without a browser."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgedec.cli._served import planning
from edgedec.cli.serve import command
from edgedec.decoding import drafting
from edgedec.serve import run
from edgedec.serve.settings import Settings


def test_the_page_has_a_sentence_for_each_drafter() -> None:
    """It speaks of a draft model or a head where there must be one, and only there."""
    source = (resources.files("edgedec.serve") / "static" / "plan.js").read_text("utf-8")
    said = dict(re.findall(r'^  (\w+): "(.*)",$', source, re.MULTILINE))
    assert set(said) == set(drafting.names())
    for name, sentence in said.items():
        info = drafting.info(name)
        assert ("draft model" in sentence) == info.needs_model, name
        assert ("head" in sentence) == info.needs_head, name


def test_the_command_that_makes_a_plan_can_be_pasted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names files by their whole paths, each as one word, and other models as they were."""
    for name in ("my model.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    command = planning("my model.gguf", Path("draft.gguf"))
    monkeypatch.chdir("/")
    words = shlex.split(command)
    assert words[:2] == ["edgedec", "plan"]
    assert words[3] == "--draft"
    assert Path(words[2]) == tmp_path / "my model.gguf"
    assert Path(words[4]) == tmp_path / "draft.gguf"
    assert planning("demo", None) == "edgedec plan demo"
    assert not Path("my model.gguf").exists()  # the control: the word that was typed leads nowhere


def test_only_this_machine_is_told_where_models_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[Settings] = []

    def noted(_: Any, settings: Settings, *rest: Any, **more: Any) -> None:
        served.append(settings)

    monkeypatch.setattr(run, "serve", noted)
    monkeypatch.setenv("EDGEDEC_API_KEY", "a-key-of-this-test-0123456789")
    for host, command_of_plan in (("127.0.0.1", "edgedec plan demo"), ("0.0.0.0", "")):
        found = CliRunner().invoke(
            command, ["demo", "--host", host, "--port", "0", "--plan", "none"]
        )
        assert found.exit_code == 0, found.output
        assert served[-1].planning == command_of_plan
