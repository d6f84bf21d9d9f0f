"""A policy that drafts within what a memory guard allows."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftLimits, DraftStep, GoOn
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.policy.override import Within
from edgedec.memory.guard import MemoryGuard


class Restrained(Within):
    """Another policy's decisions, cut to the guard's level.

    Args:
        policy: decides within the level.
        guard: asked once a round.

    """

    def __init__(self, policy: DraftPolicy, guard: MemoryGuard) -> None:
        super().__init__(policy)
        self._guard = guard
        self._limits = policy.limits
        self.observe = policy.observe  # type: ignore[method-assign]  # as quick as without a guard

    def limits(self) -> DraftLimits:
        guard = self._guard
        guard.tick()
        wanted, allowed = self._limits(), guard.level.limits
        if allowed is None:
            return wanted
        return DraftLimits(min(wanted.nodes, allowed.nodes), min(wanted.depth, allowed.depth))

    @property
    def go_on(self) -> GoOn:
        """The policy's own unless some drafters may not draft; see ``DraftPolicy``."""
        return self._policy.go_on if self._guard.level.sources is None else self._some

    def _some(self, step: DraftStep) -> bool:
        return self._go_on_with(self._guard.level.sources or (), step)
