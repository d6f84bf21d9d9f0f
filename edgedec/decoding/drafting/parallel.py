"""A draft model drafts a chain in one pass (PARD, 2504.18583).

It reads masks where tokens are not known yet, and predicts the token after each. Only a model that
was trained for it can do so; its checkpoint names the mask's token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.errors import InputError

# Models are trained to draft eight tokens in a pass (section 4.1 there).
_MOST = 8


class ParallelDrafter:
    """Draws the tokens of a chain from the rows of one draft pass, through the target's sampler.

    Row i has seen the text and i masks, not the tokens drawn before it, so that later tokens are
    accepted less often than those of ``ModelDrafter``, and cost next to nothing.

    Args:
        parts: with a draft model and its mask.
        context: keeps the draft session, if several drafters share it; None creates one.

    Raises:
        InputError: the draft model has no mask, or another vocabulary.

    """

    name = "parallel"

    def __init__(self, parts: DrafterParts, context: DraftContext | None = None) -> None:
        self._context = context or DraftContext(parts, self.name)
        if parts.mask is None:
            raise InputError(
                f"drafter {self.name!r} needs a draft model that was trained to draft several"
                " tokens in a pass, with pard_token in its config.json: give one, or use 'model'"
            )
        if parts.translation is not None and not parts.translation.untouched:
            raise InputError(
                f"drafter {self.name!r} needs a draft model with the target's tokenizer: give one,"
                " or use 'model'"
            )
        self._mask = parts.mask
        self.rivals = parts.rivals

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._context.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree, context = TokenTree(root), self._context
        q: dict[int, FloatArray] = {}
        draft = Draft(tree, q, self.name)
        length = min(limits.nodes, limits.depth, _MOST)
        if length > 0:
            length = min(length, context.make_room(length))
        if length <= 0:
            return draft

        leaf, masks = 0, [self._mask] * (length - 1)

        def rows() -> Rows:
            return context.rows(tree, masks)

        def confidence() -> float:
            rows()
            return context.confidence(leaf)

        def token() -> int:
            return rows().draw(leaf)

        shown = token if streams.coupled else None
        offer = Offer(self.name, confidence, shown, costly=True, rivals=self.rivals, at_once=True)
        behind = context.behind()
        if behind and not (go_on(DraftStep(offer, behind=behind)) and context.catch_up()):
            return draft
        while leaf < length and go_on(DraftStep(offer, leaf, leaf)):
            if not streams.coupled:
                q[leaf] = rows().probs(leaf)
            leaf = tree.add(rows().draw(leaf), leaf)
        draft.passes, draft.window = context.passes(tree), context.window
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        kept = feedback.verdict.path[: len(feedback.kept)]
        self._context.keep(feedback.draft.tree, kept)

    def states(self) -> dict[str, DrafterState]:
        return {"draft": self._context}

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; drafters that share a context lose its cache together."""
        if self.name not in keep:
            self._context.evict()

    def close(self) -> None:
        self._context.close()


# Plans choose ``hybrid``, which drafts in this way with such a model.
INFO = DrafterInfo(needs_model=True, needs_mask=True, planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return ParallelDrafter(parts)
