"""Estimates the speed-up of a text over plain decoding from its own rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from edgedec.decoding.policy import RoundRecord

# Fewer single-row rounds than this say too little about the cost of plain decoding.
_ENOUGH = 5


@dataclass(slots=True)
class RoundTimes:
    """Seconds of a text's rounds by the rows of their pass, without the first round.

    Rounds of equal width count with their median on both sides of the ratio, so that a pause of the
    machine counts neither for nor against speculation.

    Attributes:
        by_rows: seconds of rounds by their rows.

    """

    by_rows: dict[int, list[float]] = field(default_factory=dict)
    # Single-row rounds without the drafter's share. Those right after a wide pass are slower than
    # in plain decoding, so the others are preferred.
    _alone: list[float] = field(default_factory=list)
    _after_wide: list[float] = field(default_factory=list)
    # Single-row passes as the policy knows them, and the rounds' time outside the models.
    _known: list[float] = field(default_factory=list)
    _outside: list[float] = field(default_factory=list)
    _tokens: int = 0
    _first: bool = True
    _wide: bool = True

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None) -> None:
        """Add a round.

        Args:
            record: the round.
            total_s: its seconds, the policy's share included.
            lone_row_s: seconds of a target's pass over one row as measured by the policy; None if
                it measures nothing.

        """
        wide, self._wide = self._wide, record.rows > 1
        if self._first:
            self._first = False
            return
        self._tokens += record.emitted
        self._outside.append(record.total_s - record.target_s - record.draft_s)
        if lone_row_s is not None:
            self._known.append(lone_row_s)
        self.by_rows.setdefault(record.rows, []).append(total_s)
        if record.rows == 1:
            times = self._after_wide if wide else self._alone
            times.append(record.total_s - record.draft_s)

    @property
    def speedup(self) -> float | None:
        """Return estimated plain seconds over actual seconds; None without a single-row time."""
        plain_s = self._plain_s()
        seconds = sum(len(times) * median(times) for times in self.by_rows.values())
        if plain_s is None or not seconds:
            return None
        return plain_s * self._tokens / seconds

    def _plain_s(self) -> float | None:
        """Return seconds of a plain round: from single-row rounds, else as the policy knows."""
        for times in (self._alone, self._alone + self._after_wide):
            if len(times) >= _ENOUGH:
                return median(times)
        return median(self._known) + median(self._outside) if self._known else None
