"""A chat's history, in turns: a message and its answer."""

from __future__ import annotations

Message = dict[str, str]


class Conversation:
    """The messages so far; the oldest turns can be left out, the last message may wait.

    Args:
        system: what the assistant is told first; every conversation begins with it.

    Attributes:
        waiting: a message without an answer, or None.

    """

    def __init__(self, system: str | None = None) -> None:
        self._first = [] if system is None else [_message("system", system)]
        self._turns: list[tuple[Message, Message]] = []
        self.waiting: str | None = None

    def __len__(self) -> int:
        """Turns that were answered."""
        return len(self._turns)

    @property
    def messages(self) -> list[Message]:
        """Return the messages as a chat template takes them, the pending one last."""
        found = [*self._first, *(message for turn in self._turns for message in turn)]
        if self.waiting is not None:
            found.append(_message("user", self.waiting))
        return found

    def answer(self, text: str) -> None:
        """The waiting message has this answer."""
        assert self.waiting is not None, "answer() without a waiting message"
        self._turns.append((_message("user", self.waiting), _message("assistant", text)))
        self.waiting = None

    def drop(self, count: int) -> int:
        """Leave out this many of the oldest turns; returns how many there were to leave out."""
        dropped = min(count, len(self._turns))
        del self._turns[:dropped]
        return dropped

    def reset(self) -> None:
        """Begin anew."""
        self._turns.clear()
        self.waiting = None


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
