"""Prompt lookup where it hits, the draft model elsewhere.

While lookup hits, the draft model does not run and catches up later. A draft model with another
vocabulary drafts by tokens or by text, depending on its translation.
"""

from __future__ import annotations

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.strings import StringsDrafter

INFO = DrafterInfo(
    needs_model=True,
    overlaps=True,
    parts=(LookupDrafter.name, ModelDrafter.name),
    default=True,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    model = StringsDrafter(parts) if parts.by_text else ModelDrafter(parts)
    return CompositeDrafter(
        "hybrid", (LookupDrafter(parts.vocab_size, rivals=(model.name,)), model)
    )
