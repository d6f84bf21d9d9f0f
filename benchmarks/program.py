"""Programs of ``python -m benchmarks`` with options of their own, as thin as the commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from edgedec.cli._group import one_line_errors
from edgedec.cli._help import LoadCommand

# By name, the modules that have a ``command``; each is imported when it is called.
PROGRAMS = {
    "board": "benchmarks.board",
    "certificate": "benchmarks.certificate.command",
    "matrix": "benchmarks.certificate.matrix",
    "questions": "benchmarks.questions",
    "simulate": "benchmarks.simulation.command",
}

# Options of programs that compare greedy and sampled texts.
SAMPLED_TEMPERATURE = click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    default=0.8,
    show_default=True,
    help="Temperature of the sampled texts.",
)
SAMPLED_SEED = click.option(
    "-s", "--seed", type=int, default=0, show_default=True, help="Seed of the sampled texts."
)


class Program(click.Command):
    """A command that prints errors which the user can mend as one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with one_line_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


class LoadProgram(Program, LoadCommand):
    """A program that opens a model."""


class Programs(click.Command):
    """The suite, or the program that the first word names."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        words = [*(sys.argv[1:] if args is None else args)]
        if not words or words[0] not in PROGRAMS:
            return super().main(words, *more, **extra)
        command: click.Command = importlib.import_module(PROGRAMS[words[0]]).command
        extra["prog_name"] = f"python -m benchmarks {words[0]}"
        return command.main(words[1:], *more, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the programs."""
        with formatter.section("Programs, each with --help"):
            formatter.write_text(", ".join(sorted(PROGRAMS)))
