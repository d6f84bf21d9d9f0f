"""A head drafts a chain from the target's residual streams (EAGLE-3, 2503.01840)."""

from __future__ import annotations

from edgedec.decoding.drafting._assistant_context import AssistantContext
from edgedec.decoding.drafting._head_context import HeadContext, state_bytes
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.session import BorrowingSession, Session
from edgedec.decoding.tree import FloatArray

__all__ = ["HeadDrafter", "state_bytes"]


class HeadDrafter(ModelDrafter):
    """Draws tokens one by one from a head, as from a draft model; reads states (``ReadsStates``).

    Args:
        parts: with a head and a session of it.

    Raises:
        InputError: there is none.

    """

    name = "head"
    reads_states = True

    def __init__(self, parts: DrafterParts) -> None:
        borrows = isinstance(parts.head_session, BorrowingSession)
        self._head = (AssistantContext if borrows else HeadContext)(parts, self.name)
        super().__init__(parts, self._head)

    def attach(self, target: Session) -> bool:
        return self._head.attach(target)

    def read(self, position: int, states: FloatArray) -> None:
        self._head.read(position, states)


INFO = DrafterInfo(needs_head=True)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return HeadDrafter(parts)
