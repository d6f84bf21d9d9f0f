"""The history of a chat, in turns, and the file that stores it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec._support.locks import alone
from edgedec.errors import InputError, SessionError

if TYPE_CHECKING:
    from typing import TypeGuard

    from edgedec.pipeline import Pipeline

Message = dict[str, str]
_THINKING = "reasoning_content"


class Conversation:
    """The messages so far; the oldest turns can be dropped, and the last message may be pending.

    Args:
        system: the system message that starts every conversation, or None.

    Attributes:
        waiting: a message that is not yet answered, or None.

    """

    def __init__(self, system: str | None = None) -> None:
        self._system = system
        self._turns: list[tuple[Message, Message]] = []
        self.waiting: str | None = None

    @property
    def system(self) -> str | None:
        """The system message, if there is one."""
        return self._system

    @property
    def state(self) -> dict[str, Any]:
        """The answered turns, as JSON."""
        said = [[asked["content"], answer["content"]] for asked, answer in self._turns]
        found = {"system": self._system, "turns": said}
        thinking = [answer.get(_THINKING) for _, answer in self._turns]
        return {**found, "thinking": thinking} if any(thinking) else found

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore an untrusted ``state``, or raise InputError; keeps a system message set here."""
        system, said, thinking = (state.get(name) for name in ("system", "turns", "thinking"))
        if thinking is None and isinstance(said, list):
            thinking = [None] * len(said)
        if not (
            (system is None or _is_text(system))
            and _all_turns(said)
            and _all_thinking(thinking, len(said))
        ):
            raise InputError("it contains no conversation: expected one that `edgedec chat` wrote")
        self._system = system if self._system is None else self._system
        self._turns = [
            (_message("user", asked), _answer(text, thought))
            for (asked, text), thought in zip(said, thinking, strict=True)
        ]

    def __len__(self) -> int:
        """Return the number of answered turns."""
        return len(self._turns)

    @property
    def messages(self) -> list[Message]:
        """Return the messages for a chat template, the pending one last."""
        found = [] if self._system is None else [_message("system", self._system)]
        found += [message for turn in self._turns for message in turn]
        if self.waiting is not None:
            found.append(_message("user", self.waiting))
        return found

    @property
    def without_turns(self) -> list[Message]:
        """Return the messages that dropping turns would leave."""
        return [message for message in self.messages if message["role"] == "system"] + (
            [] if self.waiting is None else [_message("user", self.waiting)]
        )

    def answer(self, text: str, thinking: str = "") -> None:
        """Add the answer to the waiting message; the template says what of its thinking stays."""
        assert self.waiting is not None, "answer() without a waiting message"
        self._turns.append((_message("user", self.waiting), _answer(text, thinking)))
        self.waiting = None

    def instruct(self, system: str | None) -> None:
        """Change or remove the system message."""
        self._system = system

    def drop(self, count: int) -> int:
        """Drop the ``count`` oldest turns; return how many there were to drop."""
        dropped = min(count, len(self._turns))
        del self._turns[:dropped]
        return dropped

    def reset(self) -> None:
        """Begin a new conversation."""
        self._turns.clear()
        self.waiting = None


def turns(count: int) -> str:
    """Return a number of turns in words."""
    return "1 turn" if count == 1 else f"{count} turns"


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _answer(text: str, thinking: str | None) -> Message:
    return _message("assistant", text) | ({_THINKING: thinking} if thinking else {})


def _all_thinking(raw: object, count: int) -> TypeGuard[list[str | None]]:
    return (
        isinstance(raw, list)
        and len(raw) == count
        and all(thought is None or _is_text(thought) for thought in raw)
    )


def _all_turns(raw: object) -> TypeGuard[list[list[str]]]:
    return isinstance(raw, list) and all(
        isinstance(turn, list) and len(turn) == 2 and all(_is_text(said) for said in turn)
        for turn in raw
    )


def _is_text(raw: object) -> bool:
    """Return whether it is text that can be encoded; JSON may contain half a surrogate pair."""
    return isinstance(raw, str) and not any("\ud800" <= character <= "\udfff" for character in raw)


# -- its file: restored at the start, written after each answer, locked between -----------------

BUSY = "another edgedec process has this conversation open: end that, or name another file"


class SessionFile:
    """A conversation on disk; made by ``opened``."""

    def __init__(self, path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
        self._path, self._pipeline, self._conversation = path, pipeline, conversation
        self._saved: int | None = None  # turns in the file

    def is_at(self, path: Path) -> bool:
        """Return whether a path refers to this file."""
        return path.resolve() == self._path.resolve()

    def restore(self) -> None:
        """Restore the conversation from the file, if it exists."""
        if self._path.exists():
            load(self._path, self._pipeline, self._conversation)
            self._saved = len(self._conversation)

    def write(self) -> None:
        """Write the conversation; InputError if that fails, which leaves the file unchanged."""
        try:
            self._pipeline.save(self._path, self._conversation.state)
        except SessionError as error:
            raise InputError(f"{self._path}: not written: {error}") from None
        except OSError as error:
            left = "nothing of this conversation"
            if self._saved is not None:
                left = f"only the {turns(self._saved)} saved before"
            raise InputError(
                f"{self._path}: {error.strerror}: not saved: the file has {left}"
            ) from None
        self._saved = len(self._conversation)


def _followed(path: Path) -> Path:
    """Return the file that a link leads to, which is then locked and written in the link's place.

    Raises:
        InputError: the link leads back to itself.

    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise InputError(f"{path}: a link that leads back to itself: name a file")
    return real if path.is_symlink() else path


def load(path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
    """Restore a conversation from a file; an InputError leaves this one unchanged."""
    try:
        conversation.resume(pipeline.restore(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (InputError, SessionError) as error:
        raise InputError(
            f"{path}: {error}; the file is not changed: name another one to start a conversation"
        ) from None


def save(path: Path, pipeline: Pipeline, conversation: Conversation) -> None:
    """Write a conversation to a new file or over an earlier conversation; else InputError."""
    from edgedec.decoding import snapshot

    path = _followed(path)
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
    """Lock the file, or raise InputError, and restore it; None without a path."""
    if path is None:
        yield None
        return
    path = _followed(path)
    with alone(path, BUSY):
        found = SessionFile(path, pipeline, conversation)
        found.restore()
        yield found
