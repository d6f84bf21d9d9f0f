"""Copies, Token Recycling, and the draft model's chain and tree, chosen by the policy each round.

Chain and tree share one draft session; there is no tree if draft or target computes chains only.
"""

from __future__ import annotations

from dataclasses import replace

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.recycle import RecycleDrafter
from edgedec.decoding.drafting.strings import StringsDrafter
from edgedec.decoding.drafting.suffix import copying
from edgedec.decoding.drafting.tree import TreeDrafter
from edgedec.errors import InputError

INFO = DrafterInfo(
    needs_model=True,
    parts=("hybrid", RecycleDrafter.name, TreeDrafter.name),
    lengths=(),
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    if parts.draft is None:
        raise InputError("drafter 'adaptive' needs a draft model: give one, or use 'text'")
    recycle = RecycleDrafter(parts.vocab_size, branches=parts.branches)
    arms = (*_of_model(replace(parts, rivals=(recycle.name,))), recycle)
    every = *copying(parts, [arm.name for arm in arms]), *arms
    return CompositeDrafter("adaptive", every, learner=recycle)


def _of_model(parts: DrafterParts) -> tuple[Drafter, ...]:
    if parts.by_text:
        return (StringsDrafter(parts),)
    context = DraftContext(parts, "adaptive")
    if parts.both_branches == 1:
        return (ModelDrafter(parts, context),)
    rivals = (TreeDrafter.name, *parts.rivals)
    return (
        ModelDrafter(replace(parts, rivals=rivals), context),
        TreeDrafter(parts, context=context),
    )
