"""The draft policy's protocol, and the record it gets after each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from edgedec.decoding.drafting.base import DraftLimits, DraftStep


class RoundRecord(NamedTuple):
    """One round in figures.

    Attributes:
        drafted: drafted tokens in the tree.
        depth: longest path of the draft below its root.
        accepted: of them, accepted along the path.
        emitted: tokens that reached the text.
        rows: nodes the target computed, the root included.
        draft_s, target_s, total_s: seconds in the drafter, in the target's pass, in all but
            the policy.
        source: the drafter's name.
        path: nodes the rule accepted, root first; node i is the i-th that was drafted.
        tokens: those emitted.

    """

    drafted: int
    depth: int
    accepted: int
    emitted: int
    rows: int
    draft_s: float
    target_s: float
    total_s: float
    source: str
    path: Sequence[int] = ()
    tokens: Sequence[int] = ()


class DraftPolicy(Protocol):
    """Decides draft lengths. Its choices may depend on time; the text never does."""

    name: str

    @property
    def lone_row_s(self) -> float | None:
        """Seconds of the target's pass over one row; None where nothing was measured."""
        ...

    @property
    def slowdown(self) -> float | None:
        """Current pass time relative to calibration; None where nothing was calibrated."""
        ...

    def begin(self, remaining: int) -> None:
        """Another text begins, of so many tokens at most."""
        ...

    def limits(self) -> DraftLimits:
        """Limits for the next round; 0 nodes is a legal answer: plain decoding."""
        ...

    def go_on(self, step: DraftStep) -> bool:
        """Asked before each next draw, never after it (dropping a drawn token biases q).

        A round's first question has ``step.nodes == 0``; a drafter that combines others may
        ask it once for each of them.
        """
        ...

    def observe(self, record: RoundRecord) -> None:
        """Learn from the round that just ended."""
        ...
