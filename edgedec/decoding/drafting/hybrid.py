"""Copies from this and earlier texts where they hit, the draft model elsewhere.

While they hit, the draft model does not run and catches up later. A draft model with another
vocabulary drafts by tokens or by text, depending on its translation; one that was trained to draft
several tokens in a pass does so where that adds more tokens for its time.
"""

from __future__ import annotations

from dataclasses import replace

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.strings import StringsDrafter
from edgedec.decoding.drafting.suffix import SuffixDrafter, copying

INFO = DrafterInfo(
    needs_model=True,
    overlaps=True,
    parts=(SuffixDrafter.name, LookupDrafter.name, ModelDrafter.name),
    default=True,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    arms = _of_model(parts)
    return CompositeDrafter("hybrid", (*copying(parts, [arm.name for arm in arms]), *arms))


def _of_model(parts: DrafterParts) -> tuple[Drafter, ...]:
    if parts.by_text:
        return (StringsDrafter(parts),)
    if parts.mask is None:
        return (ModelDrafter(parts),)
    from edgedec.decoding.drafting.parallel import ParallelDrafter

    context = DraftContext(parts, "hybrid")
    one_by_one = ModelDrafter(replace(parts, rivals=(ParallelDrafter.name,)), context)
    return one_by_one, ParallelDrafter(parts, context)
