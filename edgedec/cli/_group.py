"""The command group: one file per command, and one-line errors."""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from edgedec._support.fields import printable
from edgedec.cli import _config, _output, _suggestions
from edgedec.cli._terminal import INTERRUPTED
from edgedec.errors import EdgedecError


class FolderGroup(click.Group):
    """The group whose commands are the files of ``edgedec.cli``; ``bench.py`` has ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the files that are not helpers."""
        import edgedec.cli as folder

        names = (module.name for module in pkgutil.iter_modules(folder.__path__))
        return sorted(name for name in names if not name.startswith("_"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of this name; for a misspelt one, suggest the nearest."""
        if args[0] not in self.list_commands(ctx):
            ctx.fail(_suggestions.for_command(args[0], self.list_commands(ctx)))
        if args[0] in _config.COMMANDS:
            ctx.default_map = {args[0]: _config.options()}
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
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors():
            result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk fails here, not at the interpreter's exit
            return result


def check_package() -> None:
    """Refuse to run if another project's ``edgedec`` has overwritten this package.

    Raises:
        RuntimeUnavailable: it has; says how to fix it.

    """
    import edgedec

    if "Pipeline" in getattr(edgedec, "__all__", ()):
        return
    from edgedec._support import installation
    from edgedec.errors import RuntimeUnavailable

    raise RuntimeUnavailable(
        f"{edgedec.__file__} belongs to another project: {installation.stranger()}"
    )


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn every error that the user can fix into one line on stderr and an exit code."""
    try:
        yield
    except BrokenPipeError:
        raise  # click ends quietly: the pipe's reader has gone
    except (EdgedecError, click.ClickException, OSError, KeyboardInterrupt) as error:
        if os.environ.get("EDGEDEC_DEBUG") or shows_itself(error):
            raise
        _end(*describe(error))
    except ImportError as error:
        # Ctrl-C while a compiled module loads: its loader wraps the interrupt.
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
            what = _suggestions.for_option(error.option_name, error.ctx)
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
    except OSError:  # nothing can be written there any more, now or at the interpreter's exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise click.exceptions.Exit(code)
