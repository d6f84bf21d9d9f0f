"""Keeps a draft model's session in step with the text, however far it falls behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from edgedec.decoding import drafting, snapshot
from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting._translated import translated
from edgedec.decoding.drafting.base import DrafterParts, DrafterState
from edgedec.decoding.prefill import shared_length
from edgedec.decoding.sampling import Sampler
from edgedec.errors import InputError

# Saved sessions name the window so.
_SAVED_AS = "view"
# First tokens that every window keeps: they are attention sinks (2309.17453, section 3.1).
ATTENTION_SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


def no_model(name: str) -> InputError:
    """Return the error for a drafter that was built without the draft model it needs."""
    other = drafting.default(with_model=False)
    return InputError(f"drafter {name!r} needs a draft model: give one, or use {other!r}")


class Window:
    """The first and the last tokens of a text that exceeds the window (StreamingLLM, 2309.17453).

    The window grows until it is full; then its older half is dropped and the rest computed again,
    since positions count within it. That prefills one token for each token of text, in large
    chunks, and costs far less than the draft passes. The target sees the whole text, so only the
    acceptance rate can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        size: as given.
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:ATTENTION_SINKS], *text[ATTENTION_SINKS + self.left_out :]]

    def behind(self, text: Sequence[int], held: int) -> Sequence[int]:
        """Return the part that is seen behind its first ``held`` tokens."""
        if held < ATTENTION_SINKS:
            return self.of(text)[held:]
        return text[held + self.left_out :]

    def length(self, text: Sequence[int]) -> int:
        """Return the number of tokens that are seen."""
        return len(text) - self.left_out

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > ATTENTION_SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the window is too small for that, or nothing was left out and nothing is.
        """
        if self.size < _LEAST:
            return None
        before = self.left_out
        self.left_out = max(0, len(text) - ATTENTION_SINKS - self.size // 2)
        return ATTENTION_SINKS if before or self.left_out else None


class DraftContext(Context):
    """Owner of a draft session that keeps it a prefix of the text.

    Invariant: the session holds a prefix of what its window shows of ``sampler.history[:-1]``: all
    of it, unless the text is longer than the session.
    """

    def __init__(self, parts: DrafterParts, name: str) -> None:
        if parts.draft is None:
            raise no_model(name)
        session, self._widest = translated(parts.draft, parts.translation)
        super().__init__(session, parts.prefill_at_once)
        self._window = Window(session.capacity)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._drop()
        shared = shared_length(self._held, self._window.of(prompt[:-1]))
        if self._window.left_out and (shared < len(self._held) or not self._window.goes_on(prompt)):
            self._window.left_out = 0
            shared = shared_length(self._held, prompt[:-1])
        self._rollback(shared)

    def room(self) -> int:
        """Return how many nodes, including the root, can still be computed in one round."""
        seen = self._window.length(self._history())
        return min(self._window.size - seen + 1, self._widest)

    def make_room(self, nodes: int) -> int:
        """Return ``room()``; if that is less than ``nodes``, slide the context window first.

        Sliding ends an open round; the tokens that the session then lacks count as ``behind``.
        """
        room = self.room()
        if room >= min(nodes, self._window.size // 4):
            return room
        self._drop()
        kept = self._window.slide(self._history())
        if kept is not None:
            self._rollback(min(kept, len(self._held)))
        return self.room()

    def missing(self) -> Sequence[int]:
        return self._window.behind(self._history(), len(self._held))[:-1]

    # -- saving ---------------------------------------------------------------------------------

    def states(self) -> dict[str, DrafterState]:
        return {"draft": self}

    @property
    def empty(self) -> bool:
        """See ``DrafterState``; True for an unloaded model as well."""
        return not self._held

    def save(self, file: BinaryIO) -> None:
        """See ``DrafterState``: the draft's keys and values."""
        self._drop()
        left_out = self._window.left_out
        snapshot.write(file, runtime=_SAVED_AS, model="", length=left_out, payload=[])
        self._session.save(file)

    def load(self, file: BinaryIO, text: Sequence[int]) -> None:
        self._drop()
        left_out, _ = snapshot.read(file, runtime=_SAVED_AS, model="", most=0)
        self._session.load(file)
        self._window.left_out = left_out
        self._held = list(self._window.of(text)[: self._session.length])
        self._rollback(len(self._held))
