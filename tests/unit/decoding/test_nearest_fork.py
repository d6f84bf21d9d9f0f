"""A pool forks what a session can give: the nearest length, where it cannot stop at the prefix."""

from __future__ import annotations

from edgedec.decoding.session_pool import SessionPool
from edgedec.errors import CannotRollback
from edgedec.testing import FakeModel, FakeSession


class ByFours(FakeSession):
    """Can go back to multiples of four only."""

    def _copy(self, length: int) -> FakeSession:
        if length % 4:
            raise CannotRollback("multiples of four only", nearest=length - length % 4)
        return super()._copy(length)


def pooled(shared: int) -> tuple[int, list[int]]:
    """Return the length of a fork for a prompt that shares a prefix, and its session's tokens."""
    session, text = ByFours(FakeModel(), 64), list(range(2, 14)) * 3
    session.prefill(text)
    pool = SessionPool(session)
    pool.limit = 2
    pool.set_held_tokens(text)
    taken = pool.acquire([*text[:shared], 1, 1])
    assert taken.session is not session
    assert isinstance(taken.session, FakeSession)
    return taken.session.length, taken.session._committed


def test_a_fork_of_the_nearest_length() -> None:
    text = list(range(2, 14)) * 3
    assert pooled(8) == (8, text[:8])
    assert pooled(11) == (8, text[:8])
    assert pooled(3) == (0, [])
