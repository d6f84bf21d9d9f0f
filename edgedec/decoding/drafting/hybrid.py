"""Prompt lookup where it hits, the draft model elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding.drafting import lookup
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    GoOn,
    RoundFeedback,
)
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.strings import StringsDrafter
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft, TokenTree


class HybridDrafter:
    """Asks lookup first. The draft model lags behind at no cost while lookup hits.

    A draft's ``source`` is the name of the drafter that made it. A draft model of another
    vocabulary drafts by tokens or by text, as its translation says.
    """

    name = "hybrid"

    def __init__(self, parts: DrafterParts) -> None:
        by_text = parts.translation is not None and parts.translation.level == "string"
        self._model = StringsDrafter(parts) if by_text else ModelDrafter(parts)
        self._lookup = LookupDrafter(parts.vocab_size, rivals=(self._model.name,))

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._lookup.begin(prompt, sampler)
        self._model.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        if limits.nodes <= 0:  # a round that rests should cost what a plain one does
            return Draft(TokenTree(root), source=self.name)
        draft = self._lookup.propose(root, limits, go_on, streams)
        if draft.drafted:
            return draft
        return self._model.propose(root, limits, go_on, streams)

    def observe(self, feedback: RoundFeedback) -> None:
        # A no-op for drafts that are not the model's own.
        self._model.observe(feedback)

    def close(self) -> None:
        self._model.close()


INFO = DrafterInfo(
    needs_model=True,
    overlaps=True,
    parts=(LookupDrafter.name, ModelDrafter.name),
    default=True,
    estimated_by="turns",
    round_share=lookup.INFO.round_share,
    context_bytes=lookup.INFO.context_bytes,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return HybridDrafter(parts)
