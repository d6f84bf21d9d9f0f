"""A candidate and what led to it."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.planning.estimate import Estimate
from edgedec.records.plan import Candidate, Plan

_FOLLOWED = 0.05


@dataclass(frozen=True, slots=True)
class WeighedCandidate:
    """A candidate and what led to it.

    Attributes:
        candidate: as the decision lists it.
        context: tokens that a text may have.
        estimate: its mean round by formula; None where it is refused.
        uncertainty: of its speed beside plain decoding's on another text, as a share.
        measured: the part of it that pass times have.

    """

    candidate: Candidate
    context: int
    estimate: Estimate | None = None
    uncertainty: float = 0.0
    measured: float = 0.0

    @property
    def margin(self) -> float:
        """By which share it must be ahead of plain decoding to be taken.

        A length that is decided each round goes down to plain decoding where drafts turn out
        not to pay; a fixed one has nothing but the prediction.
        """
        if self.plan.draft_length is None:
            return min(self.uncertainty, _FOLLOWED)
        return self.uncertainty

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.candidate.plan

    @property
    def rate(self) -> float:
        """Predicted tokens a second."""
        return self.candidate.prediction.tokens_per_second
