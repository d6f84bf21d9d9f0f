"""Prompt lookup where it hits, Token Recycling elsewhere; needs no draft model."""

from __future__ import annotations

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.recycle import RecycleDrafter

INFO = DrafterInfo(
    parts=(LookupDrafter.name, RecycleDrafter.name),
    default=True,
    planned=False,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    recycle = RecycleDrafter(parts.vocab_size, branches=parts.branches)
    first = LookupDrafter(parts.vocab_size, rivals=(recycle.name,))
    return CompositeDrafter("text", (first, recycle), learner=recycle)
