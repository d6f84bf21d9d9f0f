"""A head drafts a tree, by the rule of ``tree``: DySpec's layers (2410.11744, section 4.3)."""

from __future__ import annotations

from edgedec.decoding.drafting._head_context import HeadContext
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.head import FollowsStates
from edgedec.decoding.drafting.tree import TreeDrafter


class HeadTreeDrafter(FollowsStates, TreeDrafter):
    """Expands a head's tokens layer by layer, a pass of the head for each layer.

    Args:
        parts: with a head and a session of it.

    Raises:
        InputError: there is none, or only chains are verified.

    """

    name = "head_tree"

    def __init__(self, parts: DrafterParts) -> None:
        self._head = HeadContext(parts, self.name)
        super().__init__(parts, context=self._head)


INFO = DrafterInfo(needs_head=True, branches=True, needs_branches=True, lengths=())


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return HeadTreeDrafter(parts)
