"""A message names an option as the user typed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest

from edgedec import Pipeline
from edgedec.cli import main
from edgedec.errors import InputError
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

Call = Callable[..., Any]


def typed() -> list[tuple[str, ...]]:
    """Every way to give an option that the demo's runtime does not take."""
    own = {option.name for option in registry.infos()["onnx"].options}
    others = {name for name in registry.options() if name not in own}
    others |= {f"draft_{name}" for name in others}
    command = main.get_command(click.Context(main), "generate")
    assert command is not None
    options = [one for one in command.get_params(click.Context(command)) if one.name in others]
    found: list[tuple[str, ...]] = []
    for one in options:
        assert isinstance(one, click.Option)
        value = one.type.choices[0] if isinstance(one.type, click.Choice) else "1"
        found += [(flag,) if one.is_flag else (flag, value)
                  for flag in (*one.opts, *one.secondary_opts)]  # fmt: skip
    return found


def test_a_refused_option_is_named_as_it_was_typed(run: Call, one_line: Call) -> None:
    ways = typed()
    flags = {way[0] for way in ways}
    assert {"--repack", "--no-repack", "--no-mmap", "--kv", "--draft-gpu-layers"} <= flags
    for way in ways:
        shown = one_line(run("generate", "demo", "x", "--plan", "none", *way))
        assert f"({way[0]}) is not a choice of the runtime onnx" in shown, way


@pytest.mark.parametrize("flag", ["--row-invariant", "--no-row-invariant"])
def test_a_former_name_is_accepted_and_not_shown(run: Call, flag: str) -> None:
    asked = [flag, "--draft", "none", "--plan", "none", "-n", 2, "--json"]
    plan = json.loads(run("generate", "demo", "x", *asked).stdout)["plan"]
    assert plan["batch_invariant"] is plan["row_invariant"] is (flag == "--row-invariant")
    assert flag not in run("generate", "--help").stdout
    assert run("generate", "demo", "x", f"--unlike{flag[2:]}").exit_code == 2


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"providers": ("CPUExecutionProvider",)}, "--provider"),
        ({"draft_load": LoadOptions(device="Vulkan0")}, "--draft-device"),
        ({"draft_load": LoadOptions(gpu_layers=2)}, "--draft-gpu-layers"),
        ({"threads": 2, "batch_threads": 2}, "--threads, --batch-threads"),
    ],
)
def test_what_a_plan_decides_is_named_as_it_was_typed(options: dict[str, Any], flags: str) -> None:
    with pytest.raises(InputError, match=f"a plan decides {flags}: leave it out"):
        Pipeline.open("demo", memory=1 << 30, **options)
