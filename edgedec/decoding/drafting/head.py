"""A head drafts a chain from the target's residual streams (EAGLE-3, 2503.01840).

One that reads its target's keys and values has no cache (Gemma 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding.drafting._head_context import HeadContext, state_bytes
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import BorrowingSession, Lending, Session
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import StateError

__all__ = ["HeadDrafter", "state_bytes"]


class AssistantContext(HeadContext):
    """Owner of a session that commits nothing and needs only the state of the text's last token.

    Invariant: ``_waiting`` has the state of the last token that the target has computed, or none.
    """

    _session: BorrowingSession

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._drop()
        self._restart(0)
        self._sampler = sampler

    def attach(self, target: Session) -> bool:
        """See ``ReadsStates``: a prompt's states are not read.

        To show them the target would compute layers that a prompt can do without. The first round,
        which is not drafted, shows what the next one needs.
        """
        if not isinstance(target, Lending):
            raise StateError("attach(): expected a target that lends its keys and values")
        self._session.borrow(target)
        return False

    def read(self, position: int, states: FloatArray) -> None:
        self._restart(position + len(states) - 1)
        self._waiting.add(states[-1:])

    def make_room(self, nodes: int) -> int:
        self._drop()
        known = len(self._waiting) and self._known == len(self._history()) - 1
        return self._session.capacity if known else 0

    def missing(self) -> Sequence[int]:
        return ()

    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        """End the round of this tree, of which nothing is kept."""
        super().keep(tree, ())


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
