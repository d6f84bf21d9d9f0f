"""An option that is declared in one place is everywhere that options are."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from kinds import in_full

from edgedec._support.options import declared, described, option, takes
from edgedec.cli._flags import flags


@described
@dataclass(frozen=True)
class Some:
    """Options of something.

    Attributes:
        other: no option.

    """

    other: int = 0
    depth: int = option(3, "How deep; see --how.", least=1, shows=True, group="Sizes")
    how_s: float | None = option(None, "CPU time.", name="how", short="-w", metavar="SECONDS")
    where: tuple[str, ...] = option((), "A place.", text="places.", takes="str | Sequence[str]")
    which: str = option("a", "Which one.", choices=("a", "b"))
    quiet: bool = option(False, "Say less.")
    tidy: bool | None = option(None, "Clean up, or not.")
    own: bool = option(False, text="for programs.")


def test_a_declaration_is_a_flag_a_keyword_and_a_sentence() -> None:
    seen = list[dict[str, Any]]()

    def command(**chosen: Any) -> None:
        seen.append(chosen)

    for one in flags(declared(Some), without=("which",)):
        command = one(command)
    shown = click.testing.CliRunner()
    made = click.command()(command)
    made.main(["--depth", "2", "-w", "1.5", "--where", "x", "--quiet", "--no-tidy"],
              standalone_mode=False)  # fmt: skip
    made.main([], standalone_mode=False)
    assert seen == [
        {"depth": 2, "how_s": 1.5, "where": ("x",), "quiet": True, "tidy": False},
        {"depth": 3, "how_s": None, "where": (), "quiet": None, "tidy": None},
    ]
    assert "x>=1" in shown.invoke(made, ["--help"]).output
    assert shown.invoke(made, ["--depth", "0"]).exit_code == 2

    @takes(declared(Some))
    def call(first: int, **options: Any) -> None:
        """One."""

    assert str(inspect.signature(call)) == (
        "(first: int, *, depth: int = 3, how: float | None = None, where: str | Sequence[str] = (),"
        " which: str = 'a', quiet: bool = False, tidy: bool | None = None, own: bool = False,"
        " **options) -> None"
    )
    said = call.__doc__ or ""
    assert "\n  Sizes\n    depth: how deep; see ``how``.\n" in said
    assert "    how: CPU time.\n    where: places.\n" in said
    assert "    how_s: CPU time.\n" in (Some.__doc__ or "")
    assert (Some.__doc__ or "").endswith("    other: no option.")


# What a new option is found in, given the name of its flag.
LOOK = """
import inspect, json, sys
sys.path.insert(0, "tools")
import click, names_stub
from edgedec import GenerateOptions, OpenOptions, Pipeline
from edgedec.cli import _options, _sampling, main
from edgedec.generation.keywords import with_changes
from edgedec.serve import parsing
from edgedec.serve.body import Body
from edgedec.serve.settings import Limits

name, given = sys.argv[1], float(sys.argv[2])
command = main.get_command(click.Context(main), "generate")
words = ["demo", "x", "--help-all"], ["demo", "x", f"--{name}", str(given)]
try:
    command.make_context("generate", words[0])
except click.exceptions.Exit:
    pass
chosen = command.make_context("generate", words[1]).params
opened = getattr(_options.open_options(chosen, "demo"), name, None)
text = getattr(_sampling.generate_options(chosen).sampling, name, None)
named = None
try:
    named = getattr(with_changes(GenerateOptions(), {name: given}).sampling, name)
except TypeError:
    named = getattr(OpenOptions(**{name: given}), name)
served = parsing._options(Body({name: given}), Limits())["sampling"].get(name)
signed = [name in inspect.signature(call).parameters for call in (Pipeline.open, Pipeline.generate)]
typed = f"    {name}: float\\n" in names_stub.page()
print(json.dumps([opened, text, named, served, signed, typed]))
"""


@pytest.mark.parametrize(
    ("file", "before", "line", "found"),
    in_full(
        [
            (
                "edgedec/decoding/params.py",
                "    top_k: int = option(\n",
                '    warmth: float = option(0.5, "How warm.", group=TEXT, wire=(0, 1))\n',
                [None, 0.25, 0.25, 0.25, [False, True], True],
            ),
            (
                "edgedec/loading/options.py",
                "    accept: str | None = option(\n",
                '    warmth: float = option(0.5, "How warm.", group=DEVICE)\n',
                [0.25, None, 0.25, None, [True, False], True],
            ),
        ]
    ),
)
def test_a_new_option_is_written_in_one_place(
    repository: Path, tmp_path: Path, file: str, before: str, line: str, found: list[Any]
) -> None:
    """Command line, help, keyword, signature, server's field and types: all of one line."""
    for folder in ("edgedec", "tools"):
        shutil.copytree(repository / folder, tmp_path / folder, symlinks=True)
    for folder in ("export", "models", "runtimes"):
        (tmp_path / folder).symlink_to(repository / folder)
    here = tmp_path / file
    changed = here.read_text("utf-8").replace(before, line + before)
    assert line in changed
    here.write_text(changed, "utf-8")

    def looked() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", LOOK, "warmth", "0.25"]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = looked()
    assert done.returncode == 0, done.stderr
    help_page, _, facts = done.stdout.strip().rpartition("\n")
    assert "--warmth FLOAT" in help_page
    assert json.loads(facts) == found
    here.write_text(changed.replace(line, ""), "utf-8")  # the control: without the line
    assert "No such option '--warmth'" in looked().stderr
