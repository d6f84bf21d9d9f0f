"""A draft model whose weights can be given back, and are loaded again when it is to compute.

Only speed depends on a draft model, so under memory pressure it can go; see ``memory.levels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from edgedec.decoding.session import Model, OnChunk, Pass, Session, Want
from edgedec.decoding.session_abilities import Rehearsing, Reserving, Trimmable
from edgedec.decoding.session_base import closed
from edgedec.decoding.tree import TokenTree
from edgedec.errors import EdgedecError, RuntimeUnavailable


class UnloadableModel:
    """A model that is loaded again, with empty sessions, after it was unloaded.

    Args:
        load: loads it.

    """

    def __init__(self, load: Callable[[], Model]) -> None:
        self._load = load
        self._model: Model | None = load()
        self.info, self.capabilities = self._model.info, self._model.capabilities
        self._sessions: list[UnloadableSession] = []

    @property
    def loaded(self) -> bool:
        """Whether its weights are in memory."""
        return self._model is not None

    def open(self, capacity: int) -> Session:
        """See ``Model``."""
        session = self.inner(capacity)
        kind = UnloadableSession
        if isinstance(session, Rehearsing):
            kind = _RehearsingSession
        elif isinstance(session, Reserving):
            kind = _ReservingSession
        self._sessions.append(kind(self, session))
        return self._sessions[-1]

    def inner(self, capacity: int) -> Session:
        """Return a session of the model itself, which is loaded if it is not.

        Raises:
            RuntimeUnavailable: it can no longer be loaded.

        """
        if self._model is None:
            try:
                self._model = self._load()
            except EdgedecError as error:
                raise RuntimeUnavailable(
                    f"the draft model was unloaded and cannot be loaded again: {error}"
                ) from error
        return self._model.open(capacity)

    def forget(self, session: UnloadableSession) -> None:
        """Leave a closed session out."""
        self._sessions = [one for one in self._sessions if one is not session]

    def unload(self) -> None:
        """Release caches and weights; what the sessions held is lost."""
        for session in self._sessions:
            session.unload()
        self.close()

    def close(self) -> None:
        """See ``Model``."""
        model, self._model = self._model, None
        if model is not None:
            model.close()


class UnloadableSession:
    """One of its sessions: empty while the model is unloaded.

    Args:
        model: opens the session again.
        inner: a session of the loaded model.

    """

    def __init__(self, model: UnloadableModel, inner: Session) -> None:
        self._model, self._inner = model, inner
        self._gone = self._closed = False
        self.capacity = inner.capacity

    @property
    def length(self) -> int:
        """See ``Session``."""
        return 0 if self._gone else self._inner.length

    def unload(self) -> None:
        """Release the cache; the next call that needs one opens another."""
        if not self._gone:
            self._inner.close()
            self._gone = True

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """See ``Session``."""
        self._here().prefill(tokens, on_chunk)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """See ``Session``."""
        return self._here().forward(tree, start, want)

    def commit(self, path: Sequence[int]) -> None:
        """See ``Session``."""
        self._here().commit(path)

    def rollback(self, length: int) -> None:
        """See ``Session``; there is nothing to do for an empty one that is unloaded."""
        if length or not self._gone or self._closed:
            self._here().rollback(length)

    def fork(self, length: int) -> Session:
        """See ``Session``; the other session is not unloaded with this one."""
        return self._here().fork(length)

    def save(self, file: BinaryIO) -> None:
        """See ``Session``."""
        self._here().save(file)

    def load(self, file: BinaryIO) -> None:
        """See ``Session``."""
        self._here().load(file)

    def interrupt(self) -> None:
        """See ``Session``."""
        self._inner.interrupt()

    def trim(self) -> None:
        """See ``Trimmable``."""
        if not self._gone and isinstance(self._inner, Trimmable):
            self._inner.trim()

    def close(self) -> None:
        """See ``Session``."""
        self.unload()
        self._closed = True
        self._model.forget(self)

    def _here(self) -> Session:
        if self._closed:
            raise closed()
        if self._gone:
            self._inner, self._gone = self._model.inner(self.capacity), False
        return self._inner


class _RehearsingSession(UnloadableSession):
    def rehearse(self, length: int, rows: int) -> None:
        """See ``Rehearsing``."""
        inner = self._here()
        assert isinstance(inner, Rehearsing)
        inner.rehearse(length, rows)


class _ReservingSession(UnloadableSession):
    @property
    def allocated(self) -> int:
        """See ``Reserving``."""
        return 0 if self._gone else self._reserving().allocated

    def reserve(self, tokens: int) -> None:
        """See ``Reserving``."""
        self._reserving().reserve(tokens)

    def _reserving(self) -> Reserving:
        inner = self._here()
        assert isinstance(inner, Reserving)
        return inner
