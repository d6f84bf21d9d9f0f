"""A draft model or a head that can be unloaded under memory pressure, and loaded again later.

It affects only speed, so decoding goes on without it; see ``memory.levels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from edgedec._support.fields import one_line
from edgedec.decoding.session import (
    BorrowingSession,
    HeadModel,
    HeadSession,
    Lending,
    Model,
    OnChunk,
    Pass,
    Rehearsing,
    Reserving,
    Session,
    Trimmable,
    Want,
)
from edgedec.decoding.session_base import closed
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, EdgedecError, RuntimeUnavailable, StateError


class UnloadableModel:
    """A model that can be unloaded, which empties its sessions, and loaded again."""

    kind = "the draft model"

    def __init__(self, load: Callable[[], Model]) -> None:
        self._load = load
        self._model: Model | None = load()
        self.info, self.capabilities = self._model.info, self._model.capabilities
        self._sessions: list[UnloadableSession] = []

    def open(self, capacity: int) -> Session:
        """See ``Model``; loads the model if it is unloaded."""
        session = self._loaded().open(capacity)
        self._sessions.append(_kind(session)(self, session))
        return self._sessions[-1]

    def load(self) -> None:
        """Load the model again and open its sessions, unless it is loaded.

        Raises:
            RuntimeUnavailable: it cannot be loaded again; it stays unloaded.

        """
        try:
            model = self._loaded()
            for session in self._sessions:
                session.reopen(model)
        except EdgedecError as error:
            self.unload()
            raise RuntimeUnavailable(
                f"{self.kind} was unloaded and cannot be loaded again: {one_line(str(error))}"
            ) from error

    def _loaded(self) -> Model:
        if self._model is None:
            model = self._load()
            if model.info != self.info:
                model.close()
                raise BundleError(f"{model.info.name} is not the model that was unloaded")
            self._model = model
        return self._model

    def forget(self, session: UnloadableSession) -> None:
        """Remove a closed session."""
        self._sessions = [one for one in self._sessions if one is not session]

    def unload(self) -> None:
        """Release caches and weights; the sessions lose their contents."""
        for session in self._sessions:
            session.unload()
        self.close()

    def close(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            model.close()


class UnloadableSession:
    """A session of an ``UnloadableModel``: empty and unable to compute while that is unloaded.

    Args:
        inner: a session of the loaded model.

    """

    def __init__(self, model: UnloadableModel, inner: Session) -> None:
        self._model, self._inner = model, inner
        self._gone = self._closed = False
        self.capacity = inner.capacity

    @property
    def length(self) -> int:
        return 0 if self._gone else self._inner.length

    def unload(self) -> None:
        """Release the cache."""
        if not self._gone:
            self._inner.close()
            self._gone = True

    def reopen(self, model: Model) -> None:
        """Open the session again, empty, unless it is open."""
        if self._gone:
            self._inner, self._gone = model.open(self.capacity), False

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        self._here().prefill(tokens, on_chunk)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        return self._here().forward(tree, start, want)

    def commit(self, path: Sequence[int]) -> None:
        self._here().commit(path)

    def rollback(self, length: int) -> None:
        """See ``Session``; does nothing while unloaded, when the session is empty."""
        if length or not self._gone or self._closed:
            self._here().rollback(length)

    def fork(self, length: int) -> Session:
        """See ``Session``; the fork is not unloaded with this session."""
        return self._here().fork(length)

    def save(self, file: BinaryIO) -> None:
        self._here().save(file)

    def load(self, file: BinaryIO) -> None:
        """See ``Session``; an unloaded session stays empty; the text is prefilled again later."""
        if not self._gone or self._closed:
            self._here().load(file)

    def interrupt(self) -> None:
        self._inner.interrupt()

    def trim(self) -> None:
        if not self._gone and isinstance(self._inner, Trimmable):
            self._inner.trim()

    def close(self) -> None:
        self.unload()
        self._closed = True
        self._model.forget(self)

    def _here(self) -> Session:
        if self._closed:
            raise closed()
        if self._gone:
            raise StateError(f"{self._model.kind} is unloaded: load() it before a pass")
        return self._inner


class _RehearsingSession(UnloadableSession):
    def rehearse(self, length: int, rows: int) -> None:
        inner = self._here()
        assert isinstance(inner, Rehearsing)
        inner.rehearse(length, rows)


class UnloadableHeadSession(_RehearsingSession):
    """A session of an ``UnloadableHead``."""

    def carry(self, rows: FloatArray) -> None:
        inner = self._here()
        assert isinstance(inner, HeadSession)
        inner.carry(rows)


class _BorrowingSession(UnloadableHeadSession):
    _target: Lending | None = None

    def borrow(self, target: Lending) -> None:
        """See ``BorrowingSession``; what is loaded again borrows from the same target."""
        self._target = target
        if not self._gone:
            self._borrow()

    def reopen(self, model: Model) -> None:
        super().reopen(model)
        self._borrow()

    def _borrow(self) -> None:
        inner = self._here()
        assert isinstance(inner, BorrowingSession)
        if self._target is not None:
            inner.borrow(self._target)


class _ReservingSession(UnloadableSession):
    @property
    def allocated(self) -> int:
        return 0 if self._gone else self._reserving().allocated

    def reserve(self, tokens: int) -> None:
        self._reserving().reserve(tokens)

    def _reserving(self) -> Reserving:
        inner = self._here()
        assert isinstance(inner, Reserving)
        return inner


def _kind(session: Session) -> type[UnloadableSession]:
    """Return the class that has the abilities of a session."""
    if isinstance(session, HeadSession):
        borrows = isinstance(session, BorrowingSession)
        return _BorrowingSession if borrows else UnloadableHeadSession
    if isinstance(session, Rehearsing):
        return _RehearsingSession
    return _ReservingSession if isinstance(session, Reserving) else UnloadableSession


class UnloadableHead(UnloadableModel):
    """A head that can be unloaded, which empties its sessions, and loaded again."""

    kind = "the head"

    def __init__(self, load: Callable[[], HeadModel]) -> None:
        super().__init__(load)
        self.reads, self.state_width = self._head().reads, self._head().state_width

    def open(self, capacity: int) -> UnloadableHeadSession:
        """See ``HeadModel``; loads the head if it is unloaded."""
        session = super().open(capacity)
        assert isinstance(session, UnloadableHeadSession), "a head opens sessions that carry"
        return session

    def blank(self, capacity: int) -> Session:
        return self._head().blank(capacity)

    def fuse(self, states: FloatArray) -> FloatArray:
        """See ``HeadModel``; StateError while it is unloaded."""
        if self._model is None:
            raise StateError(f"{self.kind} is unloaded: load() it before a pass")
        return self._head().fuse(states)

    def _head(self) -> HeadModel:
        model = self._loaded()
        assert isinstance(model, HeadModel), "what load() returned"
        return model
