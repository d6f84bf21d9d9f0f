"""The texts whose keys and values the target holds: a new one continues that which it resembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.decoding.reading import go_back, shared_length
from edgedec.decoding.session import Session
from edgedec.errors import CannotRollback, StateError

# A text that would lose fewer tokens than this is not worth a session of its own.
_WORTH = 16


@dataclass(slots=True, eq=False)
class Held:
    """A session and the text it holds.

    Attributes:
        session: the text's.
        tokens: those it held when its text ended; of a text in use, those of its prompt.
        busy: whether its text is being decoded.

    """

    session: Session
    tokens: list[int]
    busy: bool = False

    @property
    def known(self) -> Sequence[int]:
        """The tokens that it is known to hold."""
        if self.busy:
            return self.tokens[: self.session.length]
        # Another length than was left says that somebody else used the session.
        return self.tokens if self.session.length == len(self.tokens) else ()

    def end(self, text: Sequence[int]) -> None:
        """Note that its text has ended: the session holds a prefix of these tokens."""
        self.tokens, self.busy = list(text[: self.session.length]), False


class Texts:
    """Sessions of one model, each holding a text, least recently used first.

    A text begins in the session that shares the longest prefix with it. If that session's own text
    would be lost, it begins in a fork of the prefix while there may be more sessions, and otherwise
    in place of the text that was used longest ago. Engines that take turns have them in common: a
    session whose text is being decoded is forked, never taken.

    Args:
        first: an empty session.

    Attributes:
        most: sessions that there may be; at least as many as texts at a time.

    """

    def __init__(self, first: Session) -> None:
        self._kept = [Held(first, [])]
        self.most = 1

    @property
    def session(self) -> Session:
        """The session used last."""
        return self._kept[-1].session

    @session.setter
    def session(self, session: Session) -> None:
        self._kept[-1].session = session

    @property
    def sessions(self) -> list[Session]:
        """All of them."""
        return [kept.session for kept in self._kept]

    @property
    def held(self) -> Sequence[int]:
        """The tokens of the text used last."""
        return self._kept[-1].known

    def hold(self, text: Sequence[int]) -> None:
        """Take these for the tokens of the session used last."""
        self._kept[-1].end(text)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._kept)

    def shared(self, prompt: Sequence[int]) -> int:
        """Return how many tokens at the beginning of a prompt a session holds."""
        return max(shared_length(kept.known, prompt[:-1]) for kept in self._kept)

    def begin(self, prompt: Sequence[int]) -> Held:
        """Return the session that suits a prompt, gone back to what it shares with it.

        Raises:
            StateError: all sessions are in use.

        """
        needed = prompt[:-1]
        _, place, shared = max(
            (shared - _WORTH * kept.busy, place, shared)
            for place, kept in enumerate(self._kept)
            for shared in [shared_length(kept.known, needed)]
        )
        best = self._kept[place]
        if best.busy or (len(best.known) - shared >= _WORTH and self.most > 1):
            best = self._beside(best, shared)
        go_back(best.session, shared)
        self._kept.remove(best)
        self._kept.append(best)
        best.tokens, best.busy = list(needed), True
        return best

    def forget(self) -> None:
        """Hold no text; those being decoded go on."""
        for kept in self._kept:
            kept.tokens = []

    def close(self) -> None:
        """Close the sessions."""
        for kept in self._kept:
            kept.session.close()

    def _beside(self, kept: Held, shared: int) -> Held:
        """Return a session that holds the prefix, besides the text it was taken from."""
        if len(self._kept) >= self.most:
            oldest = next((one for one in self._kept if not one.busy), None)
            if oldest is None:
                raise StateError(
                    f"all {len(self._kept)} sessions are in use: end a text before another begins"
                )
            if oldest is kept:
                return kept
            self._kept.remove(oldest)
            oldest.session.close()
        fork = Held(_forked(kept.session, shared), kept.tokens[:shared])
        self._kept.append(fork)
        return fork


def _forked(session: Session, length: int) -> Session:
    """Return a fork of at most ``length`` tokens: of none where the session cannot go back."""
    try:
        return session.fork(length)
    except CannotRollback:
        return session.fork(0)
