"""The command group: one file per command, and one-line errors."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import pkgutil
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from edgedec._support import installation
from edgedec._support.fields import printable
from edgedec._support.model_path import how_to_fetch, is_hub_name, names_model, ollama_name
from edgedec._support.option_names import ELSEWHERE
from edgedec.cli import _config, _output
from edgedec.cli._terminal import INTERRUPTED
from edgedec.errors import EdgedecError, RuntimeUnavailable

# Commands by what they are for, as `edgedec --help` lists them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Use a model": ("run", "chat", "serve", "pull", "list", "show", "rm", "generate", "config"),
    "Make and fit one": ("export", "prepare", "plan", "inspect", "card", "heads"),
    "Measure and compare": ("demo", "bench", "verify", "profile"),
    "This machine": ("doctor", "devices", "cache"),
}
_OTHERS = "Others"


class FolderGroup(click.Group):
    """The group whose commands are the files of ``edgedec.cli``; ``bench.py`` has ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the files that are not helpers, in the order of their groups."""
        return [name for names in self._by_group().values() for name in names]

    def _by_group(self) -> dict[str, list[str]]:
        """Return the commands by group; those that no group names are in the last one."""
        modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
        there = sorted(name for name in modules if not name.startswith("_"))
        found = {title: [one for one in names if one in there] for title, names in GROUPS.items()}
        grouped = {name for names in found.values() for name in names}
        return {**found, _OTHERS: [name for name in there if name not in grouped]}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group, those of every day first."""
        every = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        room = formatter.width - 6 - max(map(len, every))
        for title, names in self._by_group().items():
            shown = [(name, command) for name in names if (command := every[name]) is not None]
            if shown:
                with formatter.section(title):
                    rows = [(name, command.get_short_help_str(room)) for name, command in shown]
                    width = max(map(len, every)) - max(len(name) for name, _ in rows)
                    formatter.write_dl(rows, col_spacing=2 + width)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of this name; for a misspelt one, suggest the nearest."""
        if args[0] not in self.list_commands(ctx):
            ctx.fail(_for_command(args[0], self.list_commands(ctx)))
        if args[0] in _config.COMMANDS:
            ctx.default_map = {args[0]: _config.options(args[0])}
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the file of this name, if there is one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"edgedec.cli.{cmd_name}").command
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        _output.tolerant_output()
        with one_line_errors():
            check_package()
            _refuse_clusters(args[1] if len(args) > 1 else kwargs.get("args", ()))
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors():
            result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk fails here, not at the interpreter's exit
            return result


def _refuse_clusters(words: Sequence[str]) -> None:
    """Refuse other programs' options of several letters, which click takes for several options."""
    for word in words:
        if word == "--":
            return
        if len(word) < 3 or word[0] != "-" or word[1] == "-":
            continue
        if word in _ELSEWHERE:
            raise click.UsageError(f"No such option '{word}'{_meant([_ELSEWHERE[word]])}")
        if word in _ARGUMENTS:
            raise click.UsageError(f"No such option '{word}': {_ARGUMENTS[word]}")


def check_package() -> None:
    """Refuse to run if another project's ``edgedec`` has overwritten this package."""
    import edgedec

    if "Pipeline" in getattr(edgedec, "__all__", ()):
        return
    raise RuntimeUnavailable(
        f"{edgedec.__file__} belongs to another project: {installation.stranger()}"
    )


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn every error that the user can fix into one line on stderr and an exit code."""
    try:
        yield
    except BrokenPipeError:
        raise  # click exits quietly if the reader of a pipe has gone
    except (EdgedecError, click.ClickException, OSError, KeyboardInterrupt) as error:
        if os.environ.get("EDGEDEC_DEBUG") or shows_itself(error):
            raise
        _end(*describe(error))
    except ImportError as error:
        # Ctrl-C while a compiled module loads: its loader wraps KeyboardInterrupt.
        if os.environ.get("EDGEDEC_DEBUG") or not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end(*describe(error.__cause__))


def shows_itself(error: BaseException) -> bool:
    """Return whether click prints the error itself: ``edgedec`` alone shows the help page."""
    return type(error).__name__ == "NoArgsIsHelpError"


def describe(error: BaseException) -> tuple[str, int]:
    """Return the line and the exit code of an error."""
    if isinstance(error, EdgedecError):
        return str(error), error.exit_code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        what = error.format_message()
        if isinstance(error, click.NoSuchOption):
            what = _for_option(error.option_name, error.ctx)
        return f"{what} (see {error.ctx.command_path} --help)", 2
    if isinstance(error, click.ClickException):
        return error.format_message(), 2
    if isinstance(error, OSError):
        what = f"{error.filename}: " if error.filename else ""
        advice = ": make room and run it again" if error.errno == errno.ENOSPC else ""
        return f"{what}{error.strerror or error}{advice}", 2
    return "interrupted", INTERRUPTED


def _end(message: str, code: int) -> NoReturn:
    click.echo(f"edgedec: error: {printable(' '.join(message.split()))}", err=True)
    try:
        sys.stdout.flush()
    except OSError:  # stderr is gone, for this message and at the interpreter's exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise click.exceptions.Exit(code)


# -- suggestions for a command or an option that does not exist ---------------------------------

# Names that other programs use for an option: llama.cpp, Ollama, LM Studio, mlx-lm, vLLM.
_ELSEWHERE = {
    **{f"--{name}".replace("_", "-"): f"--{now}".replace("_", "-")
       for name, now in ELSEWHERE.items()},
    "--predict": "--max-new-tokens", "--new": "--max-new-tokens",
    "--ctx-size": "--max-context", "--context-length": "--max-context",
    "--max-model-len": "--max-context", "-c": "--max-context",
    "--model-draft": "--draft", "-md": "--draft", "--speculative-model": "--draft",
    "--draft-max": "--draft-length", "--draft-n": "--draft-length",
    "--num-speculative-tokens": "--draft-length",
    "--quantize": "--weights", "--quantization": "--weights", "--outtype": "--weights",
    "--dtype": "--weights", "--q-bits": "--weights", "--output": "--out", "--outfile": "--out",
    "--sys": "--system", "-sys": "--system", "--system-prompt": "--system",
    "--stop-sequence": "--stop", "--reverse-prompt": "--stop", "--grammar-file": "--grammar",
    "--json-schema-file": "--json-schema", "--hidethinking": "--hide-thinking",
    "--reasoning-budget": "--think-tokens", "--cache-type-k": "--kv", "-ctk": "--kv",
    "-ngl": "--gpu-layers", "--alias": "--name", "--identifier": "--name",
    "--served-model-name": "--name", "--api-key": "--api-key-file",
}  # fmt: skip
# Former names of options, which are still accepted.
_RENAMED = {
    "row-invariant": "batch-invariant", "no-row-invariant": "no-batch-invariant",
    "kv-type": "kv",
}  # fmt: skip
_ARGUMENTS = {
    "--model": "the model is the first argument", "-m": "the model is the first argument",
    "--hf-repo": "the model is the first argument, as org/name",
    "-hf": "the model is the first argument, as org/name",
    "--prompt": "the prompt is an argument", "-p": "the prompt is an argument",
    "--file": "the prompt is an argument, or comes from standard input",
    "--html": "in a clone, python -m benchmarks.report MODEL --html FILE draws the page",
    "--matrix": "in a clone, python -m benchmarks matrix compares all sampling options",
    "--certificate": "in a clone, python -m benchmarks certificate MODEL --out DIR writes it",
    "--bench-report": "in a clone, python -m benchmarks board measures this machine",
    "--papers": "it was removed, with the published figures it compared",
    "--help-all": "--help shows all options of this command",
}  # fmt: skip
# Names that other programs use for a command, with what to do here.
_NO_BACKGROUND = "no model stays loaded: each command loads its own, and Ctrl-C ends edgedec serve"
_COMMANDS = {
    **dict.fromkeys(("ls", "models"), "edgedec list shows the library"),
    **dict.fromkeys(("ps", "stop", "load", "unload"), _NO_BACKGROUND),
    **dict.fromkeys(("get", "download", "install"), "edgedec pull org/name downloads a model"),
    **dict.fromkeys(
        ("create", "convert", "quantize", "import"),
        "edgedec export FOLDER --out DIR converts a model, edgedec pull FOLDER adds it to the"
        " library",
    ),
    **dict.fromkeys(("cp", "copy", "rename", "alias"), "edgedec pull MODEL --name NAME gives it"
                    " another name"),
    **dict.fromkeys(("delete", "remove", "uninstall"), "edgedec rm MODEL removes it"),
    **dict.fromkeys(("push", "upload"), "`hf upload` of huggingface_hub publishes a model"),
    **dict.fromkeys(("login", "signin"), "`hf auth login` of huggingface_hub stores a token"),
    **dict.fromkeys(("search", "find"), "search on huggingface.co, then edgedec pull org/name"),
    **dict.fromkeys(("server", "start", "api"), "edgedec serve MODEL starts a server"),
    **dict.fromkeys(("cli", "prompt", "ask", "complete"), 'edgedec run MODEL "PROMPT" answers'),
    "simulate": "in a clone, python -m benchmarks simulate plans for another machine",
    "info": "edgedec inspect MODEL describes it", "help": "edgedec --help lists the commands",
    "version": "edgedec --version shows it",
}  # fmt: skip


def current_name(name: str) -> str:
    """Return the present name of an option of the command being parsed, without dashes."""
    context = click.get_current_context(silent=True)
    if name not in _RENAMED or context is None:
        return name
    options = [option for one in context.command.get_params(context) for option in _flags(one)]
    return _RENAMED[name] if f"--{_RENAMED[name]}" in options else name


def _flags(parameter: click.Parameter) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _for_command(name: str, known: Sequence[str]) -> str:
    """Return a suggestion for a command that does not exist, as a line."""
    from edgedec.cli._values import in_library

    if names_model(name) or in_library(name):
        word = shlex.quote(name)
        return f'{word} is a model: edgedec generate {word} "PROMPT", or edgedec chat {word}'
    if is_hub_name(name):
        return how_to_fetch(name, "`edgedec export {} --out DIR`")
    if elsewhere := ollama_name(name):
        return elsewhere
    if any(character.isspace() for character in name):
        return f"No such command: to continue a text, edgedec generate {shlex.quote(name)}"
    if name in _COMMANDS:
        return f"No such command '{name}': {_COMMANDS[name]}"
    return f"No such command '{name}'" + _meant(
        difflib.get_close_matches(name, known) or [one for one in known if one.startswith(name)]
    )


def _for_option(name: str, context: click.Context) -> str:
    """Return a suggestion for an option that this command does not have, as a line."""
    if len(name) == 2 and not name[1].isalnum():
        return 'A text that begins with - goes after --, as in -- "- one"'
    known = [
        option
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in _flags(parameter)
    ]
    dashed = name.replace("_", "-")
    instead = _ARGUMENTS | getattr(context.command, "instead", {})
    if (advice := instead.get(dashed, instead.get(_ELSEWHERE.get(dashed, "")))) is not None:
        return f"No such option '{name}': {advice}"
    elsewhere = dashed if dashed in known else _ELSEWHERE.get(dashed)
    if elsewhere in known:
        return f"No such option '{name}'" + _meant([elsewhere])
    long = {option: option for option in known if option.startswith("--")}
    former = {f"--{old}": f"--{now}" for old, now in _RENAMED.items() if f"--{now}" in long}
    near = difflib.get_close_matches(name, [*long, *former], 2)
    return f"No such option '{name}'" + _meant(
        [*dict.fromkeys((former | long)[one] for one in near)]
    )


def _meant(likely: Sequence[str]) -> str:
    return f": did you mean {' or '.join(likely)}?" if likely else ""
