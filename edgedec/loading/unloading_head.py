"""A head that can be unloaded under memory pressure, and loaded again later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedec.decoding.session import Session
from edgedec.decoding.session_abilities import HeadModel
from edgedec.decoding.tree import FloatArray
from edgedec.errors import StateError
from edgedec.loading.unloading import RehearsingSession, UnloadableModel, UnloadableSession


class _Session(RehearsingSession):
    def carry(self, rows: FloatArray) -> None:
        """See ``HeadSession``."""
        inner: Any = self._here()
        inner.carry(rows)


class UnloadableHead(UnloadableModel):
    """Implements ``HeadModel``.

    Args:
        load: loads the head.

    """

    what = "head"
    _model: Any

    def __init__(self, load: Callable[[], HeadModel]) -> None:
        super().__init__(load)
        self.reads, self.state_bytes = self._model.reads, self._model.state_bytes

    def open(self, capacity: int) -> Any:
        """See ``HeadModel``; loads the head if it is unloaded."""
        return super().open(capacity)

    def kind_of(self, session: Session) -> type[UnloadableSession]:
        """Return the class that wraps a session."""
        return _Session

    def fuse(self, states: FloatArray) -> FloatArray:
        """See ``HeadModel``."""
        if self._model is None:
            raise StateError("the head is unloaded: load() it before a pass")
        fused: FloatArray = self._model.fuse(states)
        return fused
