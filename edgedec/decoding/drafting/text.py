"""Lookup where the text repeats itself, Token Recycling elsewhere: no model but the target."""

from __future__ import annotations

from edgedec.decoding.drafting.adaptive import AdaptiveDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterParts


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    alone = DrafterParts(parts.vocab_size, branches=parts.branches)
    return AdaptiveDrafter(alone, "text")
