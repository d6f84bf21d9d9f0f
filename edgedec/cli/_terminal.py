"""Prints tables, sentences and progress that fit the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from edgedec._support.fields import printable

INTERRUPTED = 130  # exit code of a program that Ctrl-C ended
# Narrowest width to which a first column is wrapped.
_NARROWEST = 24


def width(stream: TextIO) -> int:
    """Return the characters per line; unlimited without a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize


def wrapped(text: str, room: int, *, indent: str = "") -> list[str]:
    """Return lines of at most ``room`` characters if words allow; at least one line."""
    if len(text) <= room:
        return [text]
    return textwrap.wrap(
        text,
        max(room, 20),
        break_long_words=False,
        break_on_hyphens=False,
        subsequent_indent=indent,
        drop_whitespace=True,
    ) or [""]


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence on stdout or stderr, wrapped between words in a terminal."""
    for line in wrapped(text, width(sys.stderr if err else sys.stdout)):
        click.echo(line, err=err)


def note(text: str) -> None:
    """Print untrusted text on stderr, as one line."""
    click.echo(printable(text), err=True)


def columns(rows: Iterable[Sequence[str]]) -> None:
    """Print the first column left-aligned and wrapped if long, the others right-aligned."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    figures = sum(widths[1:]) + 2 * len(widths[1:])
    room = min(widths[0], max(width(sys.stdout) - figures, _NARROWEST))
    for first, *others in listed:
        mark = first[: len(first) - len(first.lstrip())]
        line, *more = wrapped(first, room, indent=mark + "    ")
        right = [text.rjust(wide) for text, wide in zip(others, widths[1:], strict=True)]
        click.echo("  ".join((line.ljust(room), *right)).rstrip())
        for rest in more:
            click.echo(rest)


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None] | None]:
    """Return a listener ``(step, done, total)`` that draws a bar; None without a terminal.

    All steps share one bar, which names the current step and ends at 100%.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    what = TextColumn(
        "{task.description}",
        markup=False,
        table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
    )
    columns = (what, BarColumn(bar_width=16), TaskProgressColumn())
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task("planning", total=None)
        # Removed at the end if no step was reported, since an empty bar would remain.
        bar.live.transient = True

        def listen(step: str, done: int, total: int) -> None:
            bar.live.transient = False
            bar.update(task, description=step, completed=done, total=total)

        yield listen
