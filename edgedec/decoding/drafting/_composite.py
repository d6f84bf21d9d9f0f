"""A drafter composed of several, tried in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterState,
    DraftLimits,
    Evictable,
    GoOn,
    Meets,
    ReadsStates,
    RoundFeedback,
    states_of,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import Session
from edgedec.decoding.tree import Draft, FloatArray, TokenTree

# The verdict on a draft without drafted tokens: only its root is kept.
_NOTHING = Verdict([0], 0)


class CompositeDrafter:
    """Tries its arms in order until one drafts something; a draft's ``source`` names that arm.

    Before an arm drafts anything, the policy declines it if a later arm (``Offer.rivals``) is worth
    more. Arms whose confidence is free come first: under a policy that compares no arms, lookup
    drafts where it hits and the model elsewhere.

    Args:
        arms: the drafters, in the order in which they are tried.
        learner: the arm, if any, that learns from every pass, whichever arm drafted.
        most: tokens that an arm drafts at most in a round, by its name.

    """

    def __init__(
        self,
        name: str,
        arms: Sequence[Drafter],
        learner: Drafter | None = None,
        most: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self._most = name, most or {}
        self._arms, self._learner = tuple(arms), learner
        self._maker = self._arms[-1]
        self._readers = [a for a in self._arms if isinstance(a, ReadsStates) and a.reads_states]
        # An arm that ran its model without drafting, and what it computed, which stays cached.
        self._declined: tuple[Drafter, Draft] | None = None
        self._resting = False
        for arm in self._arms:
            if isinstance(arm, Meets):
                arm.meet(self._arms)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, in the order in which they are tried."""
        return tuple(arm.name for arm in self._arms)

    @property
    def reads_states(self) -> bool:
        return bool(self._readers)

    def attach(self, target: Session) -> bool:
        asks = [arm.attach(target) for arm in self._readers]
        return any(asks)

    def read(self, position: int, states: FloatArray) -> None:
        for arm in self._readers:
            arm.read(position, states)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._declined = None
        for arm in self._arms:
            arm.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        self._declined = None
        self._resting = min(limits.nodes, limits.depth) <= 0
        if self._resting:
            return Draft(TokenTree(root), source=self.name)
        for arm in self._arms:
            most, own = self._most.get(arm.name), limits
            if most is not None:
                own = DraftLimits(min(limits.nodes, most), min(limits.depth, most))
            draft = arm.propose(root, own, go_on, streams)
            if draft.drafted:
                self._maker = arm
                break
            if draft.passes:
                self._declined = arm, draft
        if self._declined is not None and self._declined[1] is not draft:
            draft.passes += self._declined[1].passes
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        if self._resting:
            return  # a round without drafting should cost no more than a plain one
        drafted = feedback.draft.drafted
        if drafted:
            self._maker.observe(feedback)
        if self._declined is not None:
            arm, draft = self._declined
            arm.observe(replace(feedback, draft=draft, verdict=_NOTHING))
        if self._learner is not None and not (drafted and self._maker is self._learner):
            self._learner.observe(feedback)

    def states(self) -> dict[str, DrafterState]:
        return {name: state for arm in self._arms for name, state in states_of(arm).items()}

    def evict(self, keep: Collection[str] = ()) -> None:
        self._declined = None
        for arm in self._arms:
            if isinstance(arm, Evictable):
                arm.evict(keep)

    def close(self) -> None:
        for arm in self._arms:
            arm.close()
