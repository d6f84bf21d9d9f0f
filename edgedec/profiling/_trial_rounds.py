"""Summarises the rounds of a trial: by text without pauses, and by plan on average."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from edgedec.decoding import drafting
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import RoundRecord
from edgedec.records.plan import Plan
from edgedec.records.rounds import DrafterRounds, Drafts, SurvivalEstimate

_PAUSED = 2.0


class Recorded(Metrics):
    """Metrics of one text that keep the record of every round and its seconds."""

    __slots__ = ("rounds",)

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[RoundRecord, float]] = []

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        super().observe(record, total_s, lone_row_s)
        self.rounds.append((record, total_s))

    def calm_tpot_s(self) -> float:
        """Return the seconds per token after the first round, without pauses of the machine.

        A round that took more than twice the median of the rounds of its width was interrupted,
        and counts with that median.
        """
        after = self.emitted - self.first_round
        seconds = 0.0
        for times in self.round_times.by_rows.values():
            usual = median(times)
            seconds += sum(usual if time > _PAUSED * usual else time for time in times)
        return seconds / after if after else 0.0


def averages(plan: Plan, temperature: float, texts: Sequence[Recorded]) -> DrafterRounds | None:
    """Return averages of a plan's rounds; None if it had none."""
    records = [record for text in texts for record, _ in text.rounds]
    if not records:
        return None
    # A text's first round includes prefill.
    outside = [_outside(*one) for text in texts for one in text.rounds[1:]]
    return DrafterRounds(
        drafter=plan.drafter,
        draft_length=plan.draft_length,
        temperature=temperature,
        rounds=len(records),
        tokens=fmean(record.emitted for record in records),
        rows=fmean(record.rows for record in records),
        draft_passes=fmean(record.depth * _by_weights(record) for record in records),
        overhead_s=max(0.0, median(outside)) if outside else 0.0,
        drafts=_by_source(records, plan.draft_length or 0),
    )


def _by_source(records: Sequence[RoundRecord], length: int) -> tuple[Drafts, ...]:
    found = []
    for source in sorted({record.source for record in records if record.drafted and length}):
        estimate = SurvivalEstimate(source, length)
        for record in records:
            own = record.source == source
            estimate.observe(record.drafted * own, record.depth * own, record.accepted * own)
        found.append(estimate.drafts)
    return tuple(found)


def _by_weights(record: RoundRecord) -> bool:
    return record.drafted > 0 and drafting.info(record.source).needs_weights


def _outside(record: RoundRecord, total_s: float) -> float:
    """Return a round's seconds outside both models."""
    return total_s - record.target_s - (record.draft_s if _by_weights(record) else 0.0)


def draft_token_s(texts: Iterable[Recorded], *, head: bool) -> float:
    """Return the median seconds that a draft model or a head took for a token; 0 if none drafted.

    Args:
        texts: as they were decoded.
        head: of the head, or of the draft model.

    """
    rounds = (record for text in texts for record, _ in text.rounds[1:] if _by_weights(record))
    own = (record for record in rounds if drafting.info(record.source).needs_head == head)
    found = [record.draft_s / record.depth for record in own]
    return median(found) if found else 0.0
