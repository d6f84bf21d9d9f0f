"""What a drafter is, and what it is told after each round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """How large a draft may be this round.

    Attributes:
        nodes: drafted tokens at most (the root is not counted). 0 means: do not draft.
        depth: longest path below the root at most.

    """

    nodes: int
    depth: int


@dataclass(slots=True)
class DraftStep:
    """Where a draft stands, for the policy to say whether to go on.

    Attributes:
        depth: tokens drafted on the current path so far.
        entropy: the entropy in nats of the distribution the next token would be drawn
            from. A function, since most policies never ask and a softmax is not free.
        confidence: the largest probability of that distribution, likewise.

    """

    depth: int
    entropy: Callable[[], float]
    confidence: Callable[[], float]


GoOn = Callable[[DraftStep], bool]


@dataclass(slots=True)
class RoundFeedback:
    """What came of a draft.

    Attributes:
        draft: as proposed.
        verdict: what the rule accepted.
        scored: the target's pass over the whole tree; valid during the call only.
        kept: the tokens that were emitted, accepted ones and the next token, after the
            stop rule cut them.

    """

    draft: Draft
    verdict: Verdict
    scored: Pass
    kept: Sequence[int]


class Drafter(Protocol):
    """Proposes what the target may say next. May be wrong, must be quick."""

    name: str

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """A new text starts with these tokens; the last one is the first root.

        Drafts are drawn through ``sampler``, so that the draft's rows go through the same
        temperature, penalties and noise as the target's.
        """
        ...

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        """A tree rooted at ``root``; a lone root when ``limits.nodes == 0`` or out of ideas."""
        ...

    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from the round that just ended."""
        ...

    def close(self) -> None:
        """Give back sessions and memory."""
        ...
