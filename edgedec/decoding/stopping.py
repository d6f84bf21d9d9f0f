"""Decides when a text ends, and which characters may already be shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from edgedec.errors import InputError


class Detokenizer(Protocol):
    """Turns tokens into text one by one."""

    def push(self, token: int) -> str:
        """Return the text this token completes; empty if that would be part of a character."""
        ...

    def flush(self) -> str:
        """Return the text held back, at the end."""
        ...


class NoText:
    """A detokenizer for callers that want token ids only."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


class StopRule:
    """A rule that ends one generation at a token, a length or a string.

    The token that ends a text is part of it: an EOS token is kept and counted but has no text; the
    token that completes a stop string is kept, and the text is cut right before the string. Of
    several stop strings the one completed first counts, and of those the longest, so the text does
    not depend on its tokenisation. Only the generated text is searched, not the prompt.

    Args:
        max_new_tokens: limit, at least 1.
        stream: turns tokens into text; needed for stop strings.
        hidden: characters of the stream that are searched for and not shown.

    Attributes:
        reason: None while the text goes on, then ``"eos"``, ``"stop"`` or ``"length"``; other
            reasons, such as a deadline, are set from outside.

    Raises:
        InputError: a limit below 1, an empty stop string, or stop strings without a stream.

    """

    def __init__(
        self,
        *,
        eos_ids: Iterable[int] = (),
        max_new_tokens: int,
        stop_strings: Sequence[str] = (),
        stream: Detokenizer | None = None,
        hidden: str = "",
    ) -> None:
        if max_new_tokens < 1:
            raise InputError(f"max_new_tokens {max_new_tokens}: expected 1 or more")
        if not all(stop_strings):
            raise InputError("an empty stop string: expected at least one character")
        if stop_strings and stream is None:
            raise InputError("stop strings need the text: give a tokenizer's stream as well")
        self.reason: str | None = None
        self._eos_ids = frozenset(eos_ids)
        self._left = max_new_tokens
        self._stops = tuple(dict.fromkeys(stop_strings))
        self._stream: Detokenizer = stream or NoText()
        self._hidden = dict.fromkeys(map(ord, hidden))
        self._held = ""
        self._pieces: list[str] = []

    @property
    def remaining(self) -> int:
        """Tokens left before the limit; 0 once the text has ended."""
        return self._left if self.reason is None else 0

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], list[str]]:
        """Return the tokens up to the end of the text, and the text each of them completes.

        Sets ``reason`` if the text ends among them. Text that may begin a stop string is held back
        until that is decided.
        """
        kept: list[int] = []
        texts: list[str] = []
        for token in tokens:
            if self.reason is not None:
                break
            kept.append(token)
            texts.append(self._take(token))
        self._pieces += texts
        return kept, texts

    def finish(self) -> str:
        """End the text and return all of it, including what was held back."""
        if self.reason is None:
            self.reason = "cancelled"
        self._pieces.append(self._flush())
        return "".join(self._pieces)

    def _take(self, token: int) -> str:
        self._left -= 1
        if token in self._eos_ids:
            self.reason = "eos"
            return self._flush()
        text = self._stream.push(token)
        if self._stops:
            text = self._release(text)
        if self.reason is None and self._left == 0:
            self.reason = "length"
            text += self._flush()
        return text

    def _flush(self) -> str:
        """Return the end of the text; empty after a stop string, and the second time."""
        if self.reason == "stop":
            return ""
        text = self._release(self._stream.flush())
        if self.reason != "stop":
            text, self._held = text + self._held.translate(self._hidden), ""
        return text

    def _release(self, text: str) -> str:
        """Append ``text``; return what is safe to show."""
        if not self._stops:
            return text
        known = self._held + text
        match = self._first_match(known)
        if match is not None:
            self.reason, self._held = "stop", ""
            return known[:match].translate(self._hidden)
        safe = len(known) - self._undecided(known)
        self._held = known[safe:]
        return known[:safe].translate(self._hidden)

    def _first_match(self, text: str) -> int | None:
        """Return where the stop string completed first begins; the longest of equals."""
        found = ((text.find(stop), len(stop)) for stop in self._stops)
        ends = [(start + length, start) for start, length in found if start >= 0]
        return min(ends)[1] if ends else None

    def _undecided(self, text: str) -> int:
        """Return the length of the longest suffix of ``text`` that begins a stop string."""
        longest = max(map(len, self._stops)) - 1
        for size in range(min(longest, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0
