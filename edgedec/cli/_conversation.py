"""The history of a chat, in turns: a message and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgedec.errors import InputError

if TYPE_CHECKING:
    from typing import TypeGuard

Message = dict[str, str]


class Conversation:
    """The messages so far; the oldest turns can be dropped, and the last message may be pending.

    Args:
        system: the system message; every conversation begins with it.

    Attributes:
        waiting: a message without an answer, or None.

    """

    def __init__(self, system: str | None = None) -> None:
        self._system = system
        self._turns: list[tuple[Message, Message]] = []
        self.waiting: str | None = None

    @property
    def state(self) -> dict[str, Any]:
        """The answered turns, as JSON."""
        said = [[asked["content"], answer["content"]] for asked, answer in self._turns]
        return {"system": self._system, "turns": said}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``, which is untrusted; this conversation's own system message stays.

        Raises:
            InputError: it is something else.

        """
        system, turns = state.get("system"), state.get("turns")
        if not ((system is None or _is_text(system)) and _all_turns(turns)):
            raise InputError("it holds no conversation: expected one that `edgedec chat` wrote")
        self._system = system if self._system is None else self._system
        self._turns = [(_message("user", a), _message("assistant", b)) for a, b in turns]

    def __len__(self) -> int:
        """Return the number of answered turns."""
        return len(self._turns)

    @property
    def messages(self) -> list[Message]:
        """Return the messages as a chat template takes them, the pending one last."""
        found = [] if self._system is None else [_message("system", self._system)]
        found += [message for turn in self._turns for message in turn]
        if self.waiting is not None:
            found.append(_message("user", self.waiting))
        return found

    def answer(self, text: str) -> None:
        """Add the answer to the waiting message."""
        assert self.waiting is not None, "answer() without a waiting message"
        self._turns.append((_message("user", self.waiting), _message("assistant", text)))
        self.waiting = None

    def instruct(self, system: str | None) -> None:
        """Change the system message, or leave it out."""
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


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _all_turns(raw: object) -> TypeGuard[list[list[str]]]:
    return isinstance(raw, list) and all(
        isinstance(turn, list) and len(turn) == 2 and all(_is_text(said) for said in turn)
        for turn in raw
    )


def _is_text(raw: object) -> bool:
    """Return whether it is text that can be encoded: JSON can hold half of a surrogate pair."""
    return isinstance(raw, str) and not any("\ud800" <= character <= "\udfff" for character in raw)
