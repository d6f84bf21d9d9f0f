"""Estimates a generation's speed-up over plain decoding from its own rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from edgedec.decoding.policy import RoundRecord

# Single-row rounds needed for an estimate of the cost of plain decoding.
_ENOUGH = 5


@dataclass(slots=True)
class RoundTimes:
    """Times of a generation's rounds by the width of their pass, without the first round.

    Both sides of the ratio use the median time of rounds of equal width, so that a pause of the
    machine counts neither for nor against speculation.

    Attributes:
        by_rows: times of rounds in seconds, by the number of rows in their pass.

    """

    by_rows: dict[int, list[float]] = field(default_factory=dict)
    # Single-row rounds without the drafter's share. A round right after a wide pass is slower than
    # in plain decoding, so the others are preferred.
    _alone: list[float] = field(default_factory=list)
    _after_wide: list[float] = field(default_factory=list)
    # Single-row passes as measured by the policy, and the rounds' time outside the models.
    _known: list[float] = field(default_factory=list)
    _outside: list[float] = field(default_factory=list)
    _tokens: int = 0
    _first: bool = True
    _wide: bool = True

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None) -> None:
        """Add a round.

        Args:
            record: the round.
            total_s: its time in seconds, including the policy's share.
            lone_row_s: time of a single-row target pass as measured by the policy, in seconds;
                None if it measures none.

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
        """Return the time of a plain round, from single-row rounds or else from the policy."""
        for times in (self._alone, self._alone + self._after_wide):
            if len(times) >= _ENOUGH:
                return median(times)
        return median(self._known) + median(self._outside) if self._known else None
