"""Proposes what followed the text's last tokens in earlier texts, where those tell more than it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from edgedec.decoding.drafting._earlier import (
    EARLIER_BYTES,
    LONGEST,
    EarlierTexts,
    Match,
    Texts,
)
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftToken,
    TokenDrafter,
)
from edgedec.decoding.drafting.lookup import LONGEST as LOOKED_UP
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft


class SuffixDrafter(TokenDrafter):
    """Proposes what followed the longest copy of the text's tail in earlier texts of its owner.

    Args:
        earlier: those texts, which this text joins when another begins; None where none are kept.
        rivals: the drafters that are tried next, if any.

    """

    name = "suffix"

    def __init__(self, earlier: EarlierTexts | None, rivals: Sequence[str] = ()) -> None:
        super().__init__(rivals)
        self._earlier = earlier
        # Proposes from the text itself, unless an earlier one has a longer copy.
        self._lookup: LookupDrafter | None = None
        self._texts: list[Texts] = []

    def meet(self, arms: Sequence[Drafter]) -> None:
        """Leave to prompt lookup, if it is one of these, what it knows as well."""
        self._lookup = next((arm for arm in arms if isinstance(arm, LookupDrafter)), None)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        super().begin(prompt, sampler)
        if self._earlier is not None:
            self._texts = self._earlier.begin(self, sampler.owner, sampler.history)

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        if not self._texts:
            return
        own = 0 if self._lookup is None else self._lookup.match()[1]
        if own == LOOKED_UP:
            return
        tail, leaf = self.sampler.history[-LONGEST:], 0
        best = self._find(tail)
        # A token that followed again and again is as likely as one after a longer copy.
        known = best.length + best.times
        while best.length > (0 if leaf else own):
            for token in best.tokens:
                if not self.sampler.permits(draft.tree, leaf, token):
                    return
                yield DraftToken(token, (known + leaf) / (known + leaf + 0.75))
                leaf += 1
            tail = [*tail, *best.tokens][-LONGEST:]
            best = self._find(tail)

    def _find(self, tail: Sequence[int]) -> Match:
        """Return the longest copy of a tail; of equal ones that of the owner, who is the first."""
        return max([texts.find(tail) for texts in self._texts], key=Match.by_length)

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; nothing is kept until it is named in a later call."""
        if self._earlier is not None:
            self._earlier.rest(resting=self.name not in keep)


INFO = DrafterInfo(
    planned=False,  # how much it drafts depends on the texts that came before
    shared_bytes=EARLIER_BYTES,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return SuffixDrafter(parts.earlier, parts.rivals)


def copying(parts: DrafterParts, rivals: Sequence[str] = ()) -> tuple[Drafter, ...]:
    """Return the drafters that copy: from earlier texts, if any are kept, and from the text."""
    lookup = LookupDrafter(parts.vocab_size, rivals=rivals)
    if parts.earlier is None:
        return (lookup,)
    return SuffixDrafter(parts.earlier, (lookup.name, *rivals)), lookup
