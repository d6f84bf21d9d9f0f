"""Copies from this and earlier texts where they hit, Token Recycling elsewhere."""

from __future__ import annotations

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.recycle import RecycleDrafter
from edgedec.decoding.drafting.suffix import SuffixDrafter, copying

INFO = DrafterInfo(
    parts=(SuffixDrafter.name, LookupDrafter.name, RecycleDrafter.name),
    default=True,
    planned=False,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    recycle = RecycleDrafter(parts.vocab_size, branches=parts.branches)
    arms = *copying(parts, (recycle.name,)), recycle
    return CompositeDrafter("text", arms, learner=recycle)
