"""The draft policy's protocol, a fixed draft length, and the options of one request."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import DraftLimits, DraftStep
from edgedec.errors import InputError


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
