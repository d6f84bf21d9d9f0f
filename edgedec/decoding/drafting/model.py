"""A small model drafts a chain (speculative sampling, 2211.17192)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting._draft_context import DraftContext
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DrafterState,
    DraftLimits,
    DraftStep,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft, FloatArray, TokenTree


class ModelDrafter:
    """Draws tokens one by one from the draft model, through the target's sampler.

    A draft of d tokens costs d draft passes. Of a text longer than its context window, the draft
    model sees the beginning and the end.

    Args:
        parts: with a draft model.
        context: keeps the draft session, if several drafters share it; None creates one.

    """

    name = "model"
    # Whether one pass has the rows of the whole draft, and of how many tokens at most.
    at_once, most = False, 1 << 30

    def __init__(self, parts: DrafterParts, context: Context | None = None) -> None:
        self._context = context or DraftContext(parts, self.name)
        self.rivals = parts.rivals

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._context.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree, context = TokenTree(root), self._context
        q: dict[int, FloatArray] = {}
        draft = Draft(tree, q, self.name)
        length = min(limits.nodes, limits.depth, self.most)
        if length > 0:
            length = min(length, context.make_room(length))
        if length <= 0:
            return draft

        leaf, masks = 0, self._masks(length)

        def confidence() -> float:
            context.rows(tree, masks)
            return context.confidence(leaf)

        def token() -> int:
            return context.rows(tree, masks).draw(leaf)

        # Computed on demand: a policy that stops without looking at the next distribution saves
        # its pass.
        shown = token if streams.coupled else None
        offer = Offer(self.name, confidence, shown, True, self.rivals, self.at_once)
        behind = context.behind()
        if behind and not (go_on(DraftStep(offer, behind=behind)) and context.catch_up()):
            return draft
        while leaf < length and go_on(DraftStep(offer, leaf, leaf)):
            rows = context.rows(tree, masks)
            if not streams.coupled:
                q[leaf] = rows.probs(leaf)
            leaf = tree.add(rows.draw(leaf), leaf)
        draft.passes = context.passes(tree)
        return draft

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
