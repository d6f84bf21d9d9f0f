"""A small model drafts a chain (speculative sampling, 2211.17192)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from edgedec.decoding.drafting._context import Context, DraftContext
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DrafterState,
    DraftLimits,
    DraftStep,
    DraftToken,
    GoOn,
    Offer,
    RoundFeedback,
    TokenDrafter,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft


class ModelDrafter(TokenDrafter):
    """Draws tokens one by one from the draft model, through the target's sampler.

    A draft of d tokens costs d draft passes. Of a text longer than its context window, the draft
    model sees the beginning and the end.

    Args:
        context: keeps the draft session, if several drafters share it; None creates one.

    """

    name = "model"
    costly = True
    # Most tokens of a draft.
    most = 1 << 30

    def __init__(self, parts: DrafterParts, context: Context | None = None) -> None:
        super().__init__(parts.rivals)
        self._context = context or DraftContext(parts, self.name)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        super().begin(prompt, sampler)
        self._context.begin(prompt, sampler)

    def shows(self, streams: Streams) -> bool:
        return streams.coupled

    def ready(self, limits: DraftLimits, go_on: GoOn) -> DraftLimits:
        length = min(limits.nodes, limits.depth, self.most)
        length = min(length, self._context.make_room(length))
        ready = length > 0 and self._caught_up(go_on)
        return DraftLimits(length if ready else 0, limits.depth)

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        tree, context, masks = draft.tree, self._context, self._masks(limits.nodes)
        while True:
            leaf = len(tree) - 1
            rows = context.rows(tree, masks)
            draft.passes = context.passes(tree)
            if not streams.coupled:
                draft.q[leaf] = rows.probs(leaf)
            yield DraftToken(rows.draw(leaf), context.confidence(leaf))

    def _caught_up(self, go_on: GoOn, value: float | None = None) -> bool:
        """Return whether the model has read the text; prefill it if the policy agrees."""
        behind = self._context.behind()
        if not behind:
            return True
        offer = Offer(self.name, float, costly=True, rivals=self.rivals, at_once=self.at_once)
        reads = min(behind, self._context.prefill_at_once)
        step = DraftStep(offer, value=value, behind=behind, reads=reads)
        return go_on(step) and self._context.catch_up()

    def _masks(self, length: int) -> Sequence[int]:
        """Return what the first pass of a draft reads below the root."""
        return ()

    def observe(self, feedback: RoundFeedback) -> None:
        kept = feedback.verdict.path[: len(feedback.kept)]
        self._context.keep(feedback.draft.tree, kept)

    def states(self) -> dict[str, DrafterState]:
        return self._context.states()

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; drafters that share a context lose its cache together."""
        self._context.evict(kept=self.name in keep)

    def close(self) -> None:
        self._context.close()


INFO = DrafterInfo(needs_model=True, overlaps=True)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return ModelDrafter(parts)
