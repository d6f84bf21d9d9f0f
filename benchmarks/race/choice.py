"""Which ways of which peers take part in a race."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.race.protocol import Peer, Way, label


@dataclass(frozen=True, slots=True)
class Choice:
    """Which ways take part.

    Attributes:
        peers: their names.
        weights: formats; none are all.
        pattern: what a name such as ``llama.cpp q4_0 draft length=3`` must contain.
        sampled: tokens are sampled, so that ways of sampling count and those that cannot do not.
        file: the target is a GGUF file.
        drafts: there is a draft model.

    """

    peers: Sequence[str]
    weights: Sequence[str] = ()
    pattern: re.Pattern[str] = re.compile("")
    sampled: bool = False
    file: bool = False
    drafts: bool = True

    def weights_of(self, peer: Peer) -> Sequence[str]:
        """Return the formats of the target's weights that a peer may be measured with."""
        found: Sequence[str] = getattr(peer, "WEIGHTS_OF_FILE", ()) if self.file else peer.WEIGHTS
        return found

    def ways(self, peer: Peer, weights: str) -> list[Way]:
        """Return the ways with some weights that take part."""
        if self.weights and weights not in self.weights:
            return []
        kinds = (*peer.KINDS, *(getattr(peer, "SAMPLED_KINDS", ()) if self.sampled else ()))
        found: list[Way] = [
            {"weights": weights, "kind": kind, "settings": settings}
            for kind, settings in kinds
            if kind not in self.unable(peer) and (self.drafts or "draft" not in kind)
        ]
        return [way for way in found if self.pattern.search(f"{peer.NAME} {label(way)}")]

    def unable(self, peer: Peer) -> Mapping[str, str]:
        """Return the peer's kinds of drafting that cannot sample, with the reasons."""
        reasons: Mapping[str, str] = getattr(peer, "NOT_SAMPLED", {})
        return reasons if self.sampled else {}


def keeps_text(peer: Peer, way: Way, temperature: float) -> bool:
    """Return whether a way promises the text that plain decoding writes with the same seed."""
    if way["kind"] == "plain":
        return False
    return temperature == 0 or (way["kind"], way["settings"]) in getattr(peer, "COUPLED", ())
