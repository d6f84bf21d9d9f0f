"""A candidate and the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.planning.estimate import Estimate
from edgedec.records.plan import Candidate, Plan

_FOLLOWED = 0.05


@dataclass(frozen=True, slots=True)
class WeighedCandidate:
    """A candidate and the figures behind it.

    Attributes:
        candidate: as the decision lists it.
        context: most tokens of a text.
        estimate: its mean round by formula; None if it is refused.
        uncertainty: relative error of its speed-up over plain decoding, on another text.
        measured: the part of it due to pass times.

    """

    candidate: Candidate
    context: int
    estimate: Estimate | None = None
    uncertainty: float = 0.0
    measured: float = 0.0

    @property
    def margin(self) -> float:
        """Share by which it must beat plain decoding to be chosen.

        A length decided each round falls back to plain decoding where drafts do not pay; a fixed
        one relies on the prediction alone.
        """
        if self.plan.draft_length is None:
            return min(self.uncertainty, _FOLLOWED)
        return self.uncertainty

    @property
    def plan(self) -> Plan:
        """Plan of the candidate."""
        return self.candidate.plan

    @property
    def rate(self) -> float:
        """Predicted tokens per second."""
        return self.candidate.prediction.tokens_per_second
