"""The draft policy's protocol, and the record it gets after each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from edgedec.decoding.drafting.base import DraftLimits, DraftStep


class RoundRecord(NamedTuple):
    """Figures of one round.

    Attributes:
        drafted: drafted tokens in the tree.
        depth: longest path of the draft below its root.
        accepted: number of accepted drafted tokens.
        emitted: tokens that reached the text.
        rows: nodes the target computed, including the root.
        draft_s, target_s, total_s: seconds in the drafter, in the target's pass, and of the round
            without the policy.
        source: the drafter's name.
        path: nodes the rule accepted, root first; node i is the i-th that was drafted.
        tokens: those emitted.
        forced: of them, tokens after the rule's that a constraint determined.

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
    forced: int = 0


class DraftPolicy(Protocol):
    """Decides draft lengths. Its choices may depend on time; the text never does."""

    name: str

    @property
    def lone_row_s(self) -> float | None:
        """Seconds of the target's pass over one row; None if not measured."""
        ...

    @property
    def slowdown(self) -> float | None:
        """Current pass time relative to calibration; None without calibration."""
        ...

    def begin(self, remaining: int) -> None:
        """Begin another text of at most ``remaining`` tokens."""
        ...

    def limits(self) -> DraftLimits:
        """Return limits for the next round; 0 nodes means plain decoding."""
        ...

    def go_on(self, step: DraftStep) -> bool:
        """Decide on the next draw; asked before it, never after it (dropping a drawn token biases
        q).

        A round's first question has ``step.nodes == 0``; a composite drafter may ask it once for
        each of its parts.
        """
        ...

    def observe(self, record: RoundRecord) -> None:
        """Learn from the round that just ended."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A policy whose learned state can be saved and loaded between texts."""

    def learned(self) -> dict[str, Any]:
        """Return the learned state as JSON."""
        ...

    def learn_from(self, learned: dict[str, Any]) -> None:
        """Begin with what ``learned`` returned; SnapshotError if it is something else."""
        ...
