"""A policy with the same draft length every round."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.errors import InputError


class Fixed:
    """Drafts ``draft_length`` tokens, in a tree no deeper than ``depth``.

    Args:
        draft_length: drafted tokens per round, on all branches; 0 is plain decoding.
        depth: longest path; None is ``draft_length``.
        lone_row_s: as ``DraftPolicy``, measured at opening; None if it was not.

    """

    name = "fixed"
    slowdown: float | None = None

    def __init__(
        self, draft_length: int, depth: int | None = None, lone_row_s: float | None = None
    ) -> None:
        self.lone_row_s = lone_row_s
        if draft_length < 0 or (depth is not None and depth < 1):
            raise InputError(
                f"draft length {draft_length}, depth {depth}: expected 0 or more, and 1 or more"
            )
        self._limits = DraftLimits(draft_length, draft_length if depth is None else depth)

    def begin(self, remaining: int) -> None:
        pass

    def limits(self) -> DraftLimits:
        return self._limits

    def go_on(self, step: DraftStep) -> bool:
        return True

    def observe(self, record: RoundRecord) -> None:
        pass
