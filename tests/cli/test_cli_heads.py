"""``edgedec heads``: a list for a target, the commands that come next, one line if unknown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import mimo_case
import pytest

from edgedec.cli import main
from edgedec.library.published import DRAFTS, TARGETS

Run = Callable[..., Any]


def options_of(command: str) -> set[str]:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    return {flag for one in found.get_params(click.Context(found)) for flag in one.opts}


def next_commands(said: str) -> list[list[str]]:
    line = next(line for line in said.splitlines() if line.startswith("next: "))
    return [shlex.split(one) for one in line.removeprefix("next: ").split("&&")]


def test_a_target_has_its_drafts_and_what_comes_next(run: Run) -> None:
    result = run("heads", "Qwen/Qwen3-8B")
    assert result.exit_code == 0
    assert "RedHatAI/Qwen3-8B-speculator.eagle3" in result.stdout
    assert "AngelSlim/Qwen3-4B_eagle3" not in result.stdout
    assert next_commands(result.stderr) == [["edgedec", "run", "Qwen/Qwen3-8B", "--yes", "PROMPT"]]
    assert "--yes" in options_of("run")


def test_what_is_not_used_yet_is_listed_with_the_reason_and_no_command(run: Run) -> None:
    result = run("heads", "openai/gpt-oss-20b")
    assert "RedHatAI/gpt-oss-20b-speculator.eagle3" in result.stdout
    assert "not used yet: " in result.stdout
    assert result.stderr == ""


def test_without_a_target_all_are_listed_and_nothing_comes_next(run: Run) -> None:
    result = run("heads")
    assert all(one.name in result.stdout for one in (*TARGETS, *DRAFTS))
    assert result.stderr == ""
    assert "takes it along" in result.stdout


def test_a_target_that_carries_its_head_is_run_as_it_is(run: Run, tmp_path: Path) -> None:
    (command,) = next_commands(run("heads", "XiaomiMiMo/MiMo-7B-RL").stderr)
    assert command == ["edgedec", "run", "XiaomiMiMo/MiMo-7B-RL", "PROMPT"]
    sizes = {"model_type": "mimo", "num_hidden_layers": 36, "hidden_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps(sizes), "utf-8")
    (command,) = next_commands(run("heads", tmp_path).stderr)
    assert command == ["edgedec", "run", str(tmp_path), "PROMPT"]


def test_json_has_sources_and_needs(run: Run) -> None:
    listed = json.loads(run("heads", "--json").stdout)["drafts"]
    assert [one["name"] for one in listed] == [one.name for one in DRAFTS]
    assert all(one["source"] and one["needs"] for one in listed)


def test_a_bundle_takes_a_model_and_no_head(
    run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head is exported together with its target's checkpoint."""
    from edgedec.bundle import Bundle
    from edgedec.library import published, recognise

    role = Bundle.open(bundle).target
    sizes = role.architecture, role.dims["layers"], role.dims["hidden"]
    mine = published.Target("Qwen/Qwen3-8B", *sizes)
    monkeypatch.setattr(recognise, "TARGETS", (mine,))
    (command,) = next_commands(run("heads", bundle).stderr)
    assert command == ["edgedec", "run", str(bundle), "--draft", "amd/PARD-Qwen3-0.6B", "PROMPT"]
    assert "--draft" in options_of("run")


@pytest.mark.parametrize(
    ("flags", "roles"), [((), {"target", "head"}), (("--no-mtp",), {"target"})]
)
def test_a_checkpoint_that_carries_a_head(
    run: Run, tmp_path: Path, flags: tuple[str, ...], roles: set[str]
) -> None:
    quick = ("--weights", "fp32", "--no-parity", "--json")
    target = mimo_case.checkpoint(tmp_path / "mimo")
    result = run("export", target, "--out", tmp_path / "b", *flags, *quick)
    assert result.exit_code == 0, result.stderr
    assert {model["role"] for model in json.loads(result.stdout)["models"]} == roles
