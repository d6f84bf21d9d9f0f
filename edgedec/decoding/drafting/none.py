"""The drafter that drafts nothing: plain decoding through the same loop."""

from __future__ import annotations

from collections.abc import Iterator

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftToken,
    TokenDrafter,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.tree import Draft


class NoDrafter(TokenDrafter):
    """Always proposes a root without children."""

    name = PLAIN

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        return iter(())


INFO = DrafterInfo(planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return NoDrafter()
