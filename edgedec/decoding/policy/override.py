"""Policies for a single request: plain, one drafter alone, a fixed draft length."""

from __future__ import annotations

import copy
from collections.abc import Collection

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import DraftPolicy, RoundRecord
from edgedec.decoding.policy.fixed import Fixed


class Within:
    """Base class of policies that narrow another policy's decisions."""

    def __init__(self, policy: DraftPolicy) -> None:
        self.name = policy.name
        self._policy = policy

    @property
    def lone_row_s(self) -> float | None:
        return self._policy.lone_row_s

    @property
    def slowdown(self) -> float | None:
        return self._policy.slowdown

    def begin(self, remaining: int) -> None:
        self._policy.begin(remaining)

    def limits(self) -> DraftLimits:
        return self._policy.limits()

    def observe(self, record: RoundRecord) -> None:
        self._policy.observe(record)

    def _go_on_with(self, sources: Collection[str], step: DraftStep) -> bool:
        """Return the policy's decision as if there were no other drafters than these."""
        offer = step.offer
        if offer.source not in sources:
            return False
        if offer.rivals and not step.nodes:
            rivals = [name for name in offer.rivals if name in sources]
            step = step._replace(offer=offer._replace(rivals=rivals))
        return self._policy.go_on(step)


class Only(Within):
    """A policy that lets only the drafters of these names draft, as another one decides."""

    def __init__(self, policy: DraftPolicy, sources: Collection[str]) -> None:
        super().__init__(policy)
        self._sources = frozenset(sources)

    def go_on(self, step: DraftStep) -> bool:
        return self._go_on_with(self._sources, step)


def for_request(
    own: DraftPolicy, *, drafter: str | None = None, draft_length: int | None = None
) -> DraftPolicy:
    """Return a policy for one ``Request``; it leaves ``own`` unchanged.

    Args:
        own: the engine's; if only the drafter is given, a copy of it decides how much to draft.
        drafter: the only source that may draft, ``none`` for plain decoding; None is any.
        draft_length: drafted tokens per round, 0 for plain decoding; None leaves it to ``own``.

    """
    if drafter == PLAIN or draft_length == 0:
        return Fixed(0)
    policy = (
        copy.deepcopy(own)
        if draft_length is None
        else Fixed(draft_length, lone_row_s=own.lone_row_s)
    )
    return policy if drafter is None else Only(policy, [drafter])
