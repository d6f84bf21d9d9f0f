"""Copies from this and earlier texts where they hit, the target's head elsewhere."""

from __future__ import annotations

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.suffix import SuffixDrafter, copying

INFO = DrafterInfo(
    needs_head=True,
    parts=(SuffixDrafter.name, LookupDrafter.name, HeadDrafter.name),
    lengths=(),
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    head = HeadDrafter(parts)
    return CompositeDrafter("headed", (*copying(parts, (head.name,)), head))
