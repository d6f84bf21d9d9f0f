"""Lookup, Token Recycling and the draft model's chain and tree; the policy says which.

What drafts is chosen anew each round. Every arm is a drafter of its own; the policy, asked
before an arm drafts anything, declines it where one of those that are asked after it
(``Offer.rivals``) is worth more.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.decoding.drafting._follow import Follower
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    GoOn,
    RoundFeedback,
)
from edgedec.decoding.drafting.hybrid import HybridDrafter
from edgedec.decoding.drafting.lookup import LookupDrafter
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.recycle import RecycleDrafter
from edgedec.decoding.drafting.strings import StringsDrafter
from edgedec.decoding.drafting.tree import TreeDrafter
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.errors import InputError


class AdaptiveDrafter:
    """Holds several drafters, which share one draft session, and lets one of them draft.

    Those that see for nothing how sure they are come first: a policy that knows no arms then
    drafts by lookup where it hits and by the model elsewhere. Only chains where the target
    verifies chains only. A draft's ``source`` is the name of the arm that made it.

    Args:
        parts: a draft model; without one what the text and the target said is all there is.
        name: what reports call it.

    Attributes:
        arms: names of those that may draft, in the order in which they are asked.

    """

    def __init__(self, parts: DrafterParts, name: str = "adaptive") -> None:
        self.name = name
        self._follower: Follower | None = None
        by_text = parts.translation is not None and parts.translation.level == "string"
        names = ["lookup"]
        if parts.draft is not None:
            names.append("strings" if by_text else "model")
        if "model" in names and parts.both_branches != 1:
            names.append("tree")
        names.append("recycle")
        self.arms = tuple(names)
        self._drafters: list[Drafter] = []
        self._recycle = RecycleDrafter(parts.vocab_size, branches=parts.branches)
        if "model" in names:
            self._follower = Follower(parts, self.name)
        for place, name in enumerate(names):
            self._drafters.append(self._arm(name, parts, self.arms[place + 1 :]))
        # The model's draft of this round that came to nothing: its pass is not in vain.
        self._declined: Draft | None = None
        self._maker: Drafter = self._recycle
        self._resting = False

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._declined = None
        for drafter in self._drafters:
            drafter.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        self._declined = None
        self._resting = min(limits.nodes, limits.depth) <= 0
        if self._resting:
            return Draft(TokenTree(root), source=self.name)
        for drafter in self._drafters:
            draft = drafter.propose(root, limits, go_on, streams)
            if draft.drafted:
                self._maker = drafter
                break
            if draft.passes:
                self._declined = draft
        if self._declined is not None and self._declined is not draft:
            draft.passes += self._declined.passes
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        if self._resting:
            return  # such a round should cost what a plain one does
        draft = feedback.draft
        if draft.drafted:
            self._maker.observe(feedback)
        if self._declined is not None and self._follower is not None:
            self._follower.keep(self._declined.tree, (0,))
        if not draft.drafted or self._maker is not self._recycle:
            self._recycle.observe(feedback)

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()

    def _arm(self, name: str, parts: DrafterParts, rivals: Sequence[str]) -> Drafter:
        if name == "lookup":
            return LookupDrafter(parts.vocab_size, rivals=rivals)
        if name == "strings":
            return StringsDrafter(parts, rivals)
        if name == "model":
            return ModelDrafter(parts, self._follower, rivals)
        if name == "tree":
            return TreeDrafter(parts, follower=self._follower, rivals=rivals)
        return self._recycle


INFO = DrafterInfo(
    needs_model=True,
    parts=(HybridDrafter.name, RecycleDrafter.name, TreeDrafter.name),
    estimated_by="best",
    lengths=(),
    round_share=1.0,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    if parts.draft is None:
        raise InputError("drafter 'adaptive' needs a draft model: give one, or use 'text'")
    return AdaptiveDrafter(parts)
