"""Reads the user's messages: lines of a pipe, or an editor in a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from edgedec._support import user_folders

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

_MARK = "> "


class Messages(Protocol):
    """A source of the messages of a chat."""

    def next(self) -> str | None:
        """Return the next message, stripped; None at the end. Ctrl-C in a terminal is raised."""


class Piped:
    """Lines of standard input, one message each."""

    def __init__(self) -> None:
        if isinstance(sys.stdin, io.TextIOWrapper):  # a line that is not UTF-8 is reported as such
            sys.stdin.reconfigure(errors="surrogateescape")

    def next(self) -> str | None:
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            click.echo(err=True)
            return None
        return line.strip() if line else None


class Typed:
    """An editor with a history and completion; a paste of several lines is one message.

    Args:
        commands: names that Tab completes.
        history: the file that keeps what was typed, readable by the user alone; None keeps nothing.

    """

    def __init__(self, commands: Sequence[str], history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.output import create_output

        kept = None if history is None else _private(history)
        self._session: PromptSession[str] = PromptSession(
            _MARK,
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            history=InMemoryHistory() if kept is None else FileHistory(str(kept)),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="  ",
            # Only the model's text goes to standard output, which may be a file.
            output=create_output(sys.stderr),
        )

    def next(self) -> str | None:
        try:
            return self._session.prompt().strip()
        except EOFError:
            return None


def _keys() -> KeyBindings:
    """Return key bindings that differ from a text editor's: Enter sends."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _private(file: Path) -> Path | None:
    """Return the file, created readable by this user only; None if that fails."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        return file
    return None


def messages(commands: Sequence[str]) -> Messages:
    """Return the source of messages for this process's standard input."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return Piped()
    return Typed(commands, user_folders.history_file())
