"""The file of a conversation: restored at the start, written after each answer, locked between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support.locks import alone
from edgedec.cli._conversation import Conversation
from edgedec.decoding import snapshot
from edgedec.errors import InputError, SessionError

if TYPE_CHECKING:
    from edgedec.pipeline import Pipeline


BUSY = "another edgedec has this conversation open: end it there, or name another file"


class SessionFile:
    """A conversation on disk; made by ``opened``."""

    def __init__(self, path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
        self._path, self._pipeline, self._conversation = path, pipeline, conversation

    def is_at(self, path: Path) -> bool:
        """Return whether a path leads to this file."""
        return path.resolve() == self._path.resolve()

    def restore(self) -> None:
        """Go on from the file, if there is one.

        Raises:
            InputError: it is of another model, damaged, or no conversation.

        """
        if self._path.exists():
            load(self._path, self._pipeline, self._conversation)

    def write(self) -> None:
        """Write the conversation; a failure leaves the file as it was.

        Raises:
            InputError: the file cannot be written.

        """
        try:
            self._pipeline.save(self._path, self._conversation.state)
        except SessionError as error:
            raise InputError(f"{self._path}: not written: {error}") from None
        except OSError as error:
            raise InputError(
                f"{self._path}: {error.strerror}: the conversation up to the last answer is kept"
                " there, this answer is not"
            ) from None


def load(path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
    """Go on from a file of a conversation; one that cannot be used leaves this one as it is.

    Raises:
        InputError: it is not there, of another model, damaged, or no conversation.

    """
    try:
        conversation.resume(pipeline.restore(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (InputError, SessionError) as error:
        raise InputError(
            f"{path}: {error}; the file is left as it is: name another one to begin anew"
        ) from None


def save(path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
    """Write a conversation to a file, which may be one of an earlier conversation, or new.

    Raises:
        InputError: the file cannot be written, or holds something else.

    """
    try:
        if path.exists() and not snapshot.begins(path):
            raise InputError(f"{path} is not a conversation, so it is not replaced: name another")
        with alone(path, BUSY):
            pipeline.save(path, conversation.state)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except SessionError as error:
        raise InputError(f"{path}: {error}") from None


@contextmanager
def opened(
    path: Path | None, pipeline: Pipeline, conversation: Conversation
) -> Iterator[SessionFile | None]:
    """Lock the file and restore it; None without a path.

    Raises:
        InputError: another process has it, or it cannot be used.

    """
    if path is None:
        yield None
        return
    with alone(path, BUSY):
        found = SessionFile(path, pipeline, conversation)
        found.restore()
        yield found
