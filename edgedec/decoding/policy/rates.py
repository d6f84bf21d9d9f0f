"""What decoding costs and brings: seconds of passes and beside them, tokens a second."""

from __future__ import annotations

from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import CostCurve, LiveCost, RunningMedian

_FORGET = 0.97
# Of what earlier texts say a second is worth, a new one takes over as much as this many rounds.
_CARRIED = 5.0


class Rates:
    """Kept true round by round.

    Args:
        target: seconds of a target pass by its rows.
        most: drafted tokens in a round at most.

    """

    def __init__(self, target: CostCurve, most: int) -> None:
        self._cost, self._most = LiveCost(target, most + 1), most
        # Seconds beside passes, by who drafted; "" is nobody.
        self._overheads: dict[str, RunningMedian] = {}
        # What a round brought lately; starts as a few plain rounds.
        self._tokens, self._seconds = _CARRIED, _CARRIED * self._cost.at(1)

    @property
    def lone_row_s(self) -> float:
        """Seconds of the target's pass over one row."""
        return self._cost.at(1)

    @property
    def plain_s(self) -> float:
        """Seconds of a round without a draft."""
        return self.lone_row_s + self._overhead("").value

    @property
    def mood(self) -> float:
        """Current pass time relative to calibration; looks are kept in calibrated seconds."""
        return self._cost.mood

    def begin(self) -> None:
        """Another text: what was measured of the last one soon counts no more."""
        share = _CARRIED * self.plain_s / self._seconds
        self._tokens, self._seconds = share * self._tokens, share * self._seconds

    def observe(self, record: RoundRecord, looks_s: float) -> float:
        """A round ended, whose looks took so long; seconds it takes as a rule.

        Modelled, not measured: one long pause must not look like a slow policy.
        """
        self._cost.observe(record.rows, record.target_s)
        overhead = self._overhead(record.source if record.drafted else "")
        overhead.add(record.total_s - record.target_s - record.draft_s)
        seconds = self._cost.at(min(record.rows, self._most + 1)) + looks_s + overhead.value
        self._tokens = _FORGET * self._tokens + record.emitted
        self._seconds = _FORGET * self._seconds + seconds
        return seconds

    def seconds(self) -> list[float]:
        """Seconds of a target pass over 1, 2, ... ``most + 1`` rows."""
        return [self._cost.at(rows) for rows in range(1, self._most + 2)]

    def price(self) -> float:
        """Tokens that a second is worth: what decoding makes of it, and plain decoding at least."""
        return max(self._tokens / self._seconds, 1 / self.plain_s)

    def extra_s(self, name: str) -> float:
        """Seconds that a round with this drafter takes beside passes, beyond a plain one."""
        return max(0.0, self._overhead(name).value - self._overhead("").value)

    def _overhead(self, name: str) -> RunningMedian:
        known = self._overheads.get(name)
        if known is None:
            known = self._overheads[name] = RunningMedian(15, [0.0])
        return known
