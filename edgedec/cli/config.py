"""``edgedec config``: shows and sets the defaults of commands that generate text."""

from __future__ import annotations

from typing import Any

import click

from edgedec._support import user_folders
from edgedec._support.model_path import DEMO
from edgedec.cli import _config, _options, _output, _sampling, _terminal, _values
from edgedec.cli._terminal import note


class _Config(click.Group):
    """The group; a setting without ``set`` is a mistake that is explained."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].replace("-", "_") in _config.SETTINGS:
            meant = "get" if len(args) == 1 else "set"
            ctx.fail(f"did you mean edgedec config {meant} {' '.join(args)}?")
        return super().resolve_command(ctx, args)


class _Key(click.Choice):  # type: ignore[type-arg]
    """The name of a setting, which may be written as its option is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).replace("-", "_"), param, ctx)


@click.group(cls=_Config, invoke_without_command=True)
@_options.as_json
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show or set the defaults of run, chat and generate.

    They are in the file config.toml in the user's config folder, or $EDGEDEC_CONFIG. KEY is model,
    draft, drafter, threads, memory, system (of run and chat), temperature, top_k, top_p, min_p,
    repetition_penalty, presence_penalty, frequency_penalty, seed or max_new_tokens; options of the
    command line take precedence. As a file:

    \b
    model = "Qwen/Qwen3-0.6B"
    threads = 4
    memory = "2GB"
    temperature = 0.3

    \b
    edgedec config
    edgedec config set model Qwen/Qwen3-0.6B
    edgedec config set threads 4
    edgedec config set temperature 0.3
    edgedec config set system "Answer in one sentence."
    edgedec config get memory
    edgedec config unset draft
    edgedec config --json
    """  # fmt: skip
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("--json shows all settings: leave the command out")
        return
    found, file = _config.read(), user_folders.config_file()
    without = {"model": DEMO, "draft": "auto", "drafter": "auto"}
    if as_json:
        values = {name: found.get(name, without.get(name)) for name in _config.SETTINGS}
        _output.print_json({"file": str(file), "exists": file.exists(), "settings": values})
        return
    rows = [("file", f"{file}{'' if file.exists() else ' (not there)'}")]
    for name in _config.SETTINGS:
        if name in found or name in without:
            rows.append((name, str(found.get(name, f"{without.get(name)} (no setting)"))))
    _output.table(rows)
    if others := [name for name in _config.SETTINGS if name not in found and name not in without]:
        _terminal.print_text(f"no setting, each command decides: {', '.join(others)}")


_KEY = click.argument("key", type=_Key([*_config.SETTINGS]), metavar="KEY")


@command.command("set")
@_KEY
@click.argument("value")
def _set(key: str, value: str) -> None:
    """Set KEY to VALUE, as its option takes it; a file of the system message is read now."""
    if key == "memory":
        _values.memory(value)
    if key == "system":
        value = _sampling.system_text(value)
    note(f"{key} = {_config.change(key, value, _sampling.parsed)}, in {_config.file_name()}")


@command.command("unset")
@_KEY
def _unset(key: str) -> None:
    """Forget KEY, whose default is then the command's own."""
    _config.change(key, None)
    note(f"{key} is not set, in {_config.file_name()}")


@command.command("get")
@_KEY
def _get(key: str) -> None:
    """Print the value of KEY; exit code 1 if it is not set."""
    found = _config.read()
    if key not in found:
        note(f"{key} is not set")
        raise click.exceptions.Exit(1)
    click.echo(found[key])
