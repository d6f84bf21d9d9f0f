"""The times of a text's rounds, for the policy and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, RoundRecord
from edgedec.decoding.tree import Draft


class RoundLog:
    """Times a text's rounds, and records them for the policy and the metrics."""

    def __init__(self, clock: Callable[[], float], policy: DraftPolicy, metrics: Metrics) -> None:
        self._clock, self._policy, self._metrics = clock, policy, metrics
        self._started = self._begin = self._drafted = self._verified = clock()

    def begin(self) -> None:
        self._begin = self._clock()

    def drafted(self) -> None:
        self._drafted = self._clock()

    def verified(self) -> None:
        self._verified = self._clock()

    def end(self, draft: Draft, verdict: Verdict, kept: Sequence[int], ahead: int) -> None:
        """Record a round whose pass also computed ``ahead`` tokens that were emitted before."""
        now, begin = self._clock(), self._begin
        record = RoundRecord(
            drafted=draft.drafted,
            depth=max(draft.tree.depths),
            accepted=min(verdict.accepted, len(kept)),
            emitted=len(kept),
            rows=ahead + len(draft.tree),
            draft_s=self._drafted - begin,
            target_s=self._verified - self._drafted,
            total_s=now - begin,
            source=draft.source,
            path=verdict.path,
            tokens=kept,
            forced=max(0, len(kept) - verdict.accepted - 1),
            view=draft.view,
        )
        self._policy.observe(record)
        # Deciding how much to draft is part of the round's time.
        self._metrics.observe(record, self._clock() - begin, self._policy.lone_row_s)
        if self._metrics.target_passes == 1:
            self._metrics.ttft_s = now - self._started
