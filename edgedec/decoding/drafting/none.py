"""The drafter that drafts nothing: plain decoding through the same loop."""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    GoOn,
    RoundFeedback,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft, TokenTree


class NoDrafter:
    """Always proposes a root without children."""

    name = PLAIN

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        pass

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        return Draft(TokenTree(root), source=self.name)

    def observe(self, feedback: RoundFeedback) -> None:
        pass

    def close(self) -> None:
        pass


INFO = DrafterInfo(planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return NoDrafter()
