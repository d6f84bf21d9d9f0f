"""Prints tables, sentences and progress that fit the terminal."""

from __future__ import annotations

import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
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


def print_text(text: str, *, err: bool = False) -> None:
    """Print a sentence on stdout or stderr, wrapped between words in a terminal."""
    for line in wrapped(text, width(sys.stderr if err else sys.stdout)):
        click.echo(line, err=err)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program as Ctrl-C does, so that unfinished files are removed."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def note(text: str) -> None:
    """Print untrusted text on stderr, as one line, wrapped between words in a terminal."""
    print_text(printable(text), err=True)


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
