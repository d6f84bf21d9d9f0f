"""The memory of a pool's sessions: what each may hold, and which to give up first."""

from __future__ import annotations

from edgedec.decoding.session import Reserving, Session, Trimmable
from edgedec.decoding.session_pool import PooledSession, SessionPool
from edgedec.memory.account import ModelCosts


class KeptSessions:
    """Counts the sessions of a pool, the idle ones apart, which a text may need the memory of.

    Args:
        pool: of the target's sessions.

    """

    def __init__(self, pool: SessionPool, costs: ModelCosts) -> None:
        self._pool, self._costs, self._most = pool, costs, pool.limit

    @property
    def bytes(self) -> int:
        """Bytes that all sessions may hold, their own memory and their caches."""
        return sum(map(self._of, self._pool.kept))

    @property
    def coming(self) -> int:
        """Bytes of cache that the texts which run may yet fill."""
        busy = [one for one in self._pool.kept if one.busy]
        left = sum(max(0, one.wanted - one.session.length) for one in busy)
        return left * self._costs.kv_bytes_per_token

    def planned(self, tokens: int) -> int:
        """Return the bytes of a session for this many tokens."""
        return self._costs.own + self._costs.cache(tokens)

    def beside(self, tokens: int) -> int:
        """Return what sessions may hold beside a text of this many tokens and those that run.

        It is the least that can be had without dropping one: the text takes an idle session, or
        replaces it.
        """
        idle = [self._of(one) for one in self._idle()]
        return self._beyond() + (sum(idle) - min([self.planned(tokens), *idle]) if idle else 0)

    def admit(self, tokens: int, room: int) -> None:
        """Let the next text of this many tokens have a session of its own if there is room.

        Args:
            room: bytes for the idle sessions, and for copying from one, besides the text's own.

        """
        room -= self._beyond() + sum(map(self._of, self._idle()))
        self._pool.limit = self._most if room >= 0 else min(self._most, len(self._pool))
        each = self._costs.kv_bytes_per_token
        if each and isinstance(self._pool.session, Reserving):
            # A copy of a cache takes the new session's and a buffer of the same size meanwhile.
            self._pool.most_copied = (self._costs.cache(tokens) + max(0, room)) // (2 * each)

    def take(self, kept: PooledSession, tokens: int, free: int) -> None:
        """Allocate the cache of a text's session once and for all, where that can be done.

        Args:
            tokens: that the text may have cached.
            free: bytes that the process may still take.

        Raises:
            PassFailed: the runtime cannot allocate it.

        """
        session = kept.session
        tokens = min(tokens, session.capacity)
        if isinstance(session, Reserving) and session.allocated < tokens:
            # While a filled cache grows, memory holds it twice, and its saved state once more.
            if session.length and self.planned(tokens + session.length) > free:
                session.rollback(0)
            session.reserve(tokens)
        kept.wanted, kept.most = tokens, max(kept.most, tokens)

    def drop(self) -> bool:
        """Give up the oldest idle session; return whether that frees any memory.

        The last one of the pool is emptied instead.
        """
        idle = self._idle()
        if not idle:
            return False
        if len(self._pool) > 1:
            self._pool.drop(idle[0])
            return True
        before = self._of(idle[0])
        idle[0].session.rollback(0)
        if isinstance(idle[0].session, Trimmable):
            idle[0].session.trim()
        idle[0].release(())
        idle[0].most = 0
        return self._of(idle[0]) < before

    def _idle(self) -> list[PooledSession]:
        return [one for one in self._pool.kept if not one.busy]

    def _beyond(self) -> int:
        """Return what the running texts' sessions took for earlier, longer ones."""
        busy = [one for one in self._pool.kept if one.busy]
        return sum(self._of(one) - self.planned(one.wanted) for one in busy)

    def _of(self, kept: PooledSession) -> int:
        return self.planned(max(kept.most, _cached(kept.session)))


def _cached(session: Session) -> int:
    return session.allocated if isinstance(session, Reserving) else session.length
