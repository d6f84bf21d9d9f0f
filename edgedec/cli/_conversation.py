"""The history of a chat, in turns: a message and its answer."""

from __future__ import annotations

Message = dict[str, str]


class Conversation:
    """The messages so far; the oldest turns can be dropped, and the last message may be pending.

    Args:
        system: the system message; every conversation begins with it.

    Attributes:
        waiting: a message without an answer, or None.

    """

    def __init__(self, system: str | None = None) -> None:
        self._first = [] if system is None else [_message("system", system)]
        self._turns: list[tuple[Message, Message]] = []
        self.waiting: str | None = None

    def __len__(self) -> int:
        """Return the number of answered turns."""
        return len(self._turns)

    @property
    def messages(self) -> list[Message]:
        """Return the messages as a chat template takes them, the pending one last."""
        found = [*self._first, *(message for turn in self._turns for message in turn)]
        if self.waiting is not None:
            found.append(_message("user", self.waiting))
        return found

    def answer(self, text: str) -> None:
        """Add the answer to the waiting message."""
        assert self.waiting is not None, "answer() without a waiting message"
        self._turns.append((_message("user", self.waiting), _message("assistant", text)))
        self.waiting = None

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
