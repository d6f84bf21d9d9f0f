"""A pool of sessions of one model: a request starts in the one that shares its longest prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.decoding.prefill import go_back, shared_length
from edgedec.decoding.session import Session
from edgedec.errors import CannotRollback, StateError

# Cached tokens that a request must overwrite before it is given a fork instead.
_WORTH_FORKING = 16


@dataclass(slots=True, eq=False)
class PooledSession:
    """A session and the tokens whose keys and values it caches.

    Attributes:
        tokens: the tokens it cached when its last request ended; while busy, its prompt's.
        busy: whether a request is decoding in it.
        wanted: tokens that its last request may cache, where memory is limited.
        most: most tokens that any request might.

    """

    session: Session
    tokens: list[int]
    busy: bool = False
    wanted: int = 0
    most: int = 0

    @property
    def cached(self) -> Sequence[int]:
        """The tokens whose keys and values the session is known to hold."""
        if self.busy:
            return self.tokens[: self.session.length]
        # If the length changed since the last request, something else used the session.
        return self.tokens if self.session.length == len(self.tokens) else ()

    def release(self, tokens: Sequence[int]) -> None:
        """Mark the session idle; it caches a prefix of these tokens."""
        self.tokens, self.busy = list(tokens[: self.session.length]), False


class SessionPool:
    """Sessions of one model, least recently used first.

    A request starts in the session that shares the longest prefix with it. If that would overwrite
    tokens worth keeping, it starts in a fork of the prefix; at the limit, the fork replaces the
    least recently used idle session. Engines that take turns share a pool: a busy session is
    forked, never taken.

    Args:
        first: an empty session.

    Attributes:
        limit: most sessions in the pool; at least as many as concurrent requests.
        most_copied: most tokens of a session of which a fork copies a prefix; None is any number.

    """

    def __init__(self, first: Session) -> None:
        self._kept = [PooledSession(first, [])]
        self.limit = 1
        self.most_copied: int | None = None

    @property
    def session(self) -> Session:
        """The most recently used session."""
        return self._kept[-1].session

    @session.setter
    def session(self, session: Session) -> None:
        self._kept[-1].session = session

    @property
    def kept(self) -> Sequence[PooledSession]:
        """All of them, least recently used first."""
        return self._kept

    @property
    def sessions(self) -> list[Session]:
        """All sessions, least recently used first."""
        return [kept.session for kept in self._kept]

    @property
    def held_tokens(self) -> Sequence[int]:
        """The tokens cached by the most recently used session."""
        return self._kept[-1].cached

    def set_held_tokens(self, tokens: Sequence[int]) -> None:
        """Record the tokens that were loaded into the most recently used session."""
        self._kept[-1].release(tokens)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._kept)

    def shared_prefix(self, prompt: Sequence[int]) -> int:
        """Return the length of the longest prefix of a prompt that any session has cached."""
        return max(shared_length(kept.cached, prompt[:-1]) for kept in self._kept)

    def acquire(self, prompt: Sequence[int]) -> PooledSession:
        """Return a session for a prompt, rolled back to their shared prefix and marked busy.

        Raises:
            StateError: all sessions are in use.

        """
        needed = prompt[:-1]
        _, index, shared = max(
            (shared - _WORTH_FORKING * kept.busy, index, shared)
            for index, kept in enumerate(self._kept)
            for shared in [shared_length(kept.cached, needed)]
        )
        best = self._kept[index]
        if best.busy or (len(best.cached) - shared >= _WORTH_FORKING and self.limit > 1):
            best = self._forked_from(best, shared)
        go_back(best.session, min(shared, best.session.length))
        self._kept.remove(best)
        self._kept.append(best)
        best.tokens, best.busy = list(needed), True
        return best

    def forget(self) -> None:
        """Forget the cached tokens; running requests go on."""
        for kept in self._kept:
            kept.tokens = []

    def drop(self, kept: PooledSession) -> None:
        """Close an idle session; another one must be left."""
        self._kept.remove(kept)
        kept.session.close()

    def close(self) -> None:
        for kept in self._kept:
            kept.session.close()

    def _forked_from(self, kept: PooledSession, shared: int) -> PooledSession:
        """Return a fork of the prefix, or the session itself if it is the one to replace."""
        if len(self._kept) >= self.limit:
            oldest = next((one for one in self._kept if not one.busy), None)
            if oldest is None:
                raise StateError(
                    f"all {len(self._kept)} sessions are in use: end a text before another begins"
                )
            if oldest is kept:
                return kept
            self.drop(oldest)
        if self.most_copied is not None and kept.session.length > self.most_copied:
            shared = 0
        fork = PooledSession(_forked(kept.session, shared), kept.tokens[:shared])
        self._kept.append(fork)
        return fork


def _forked(session: Session, length: int) -> Session:
    """Return a fork of ``length`` tokens, or of fewer if the session cannot stop there."""
    try:
        return session.fork(length)
    except CannotRollback as error:
        return session.fork(min(length, error.nearest))
