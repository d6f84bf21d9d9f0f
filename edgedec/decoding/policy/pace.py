"""How often to ask at all: where nothing is drafted, asking must not show in the time."""

from __future__ import annotations

from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import RunningMedian

# Rounds in a row that drafted nothing, after which asking is rationed.
_BARREN = 8
# Of the time of plain decoding, what asking may take then; and rounds without it at most.
_SHARE = 0.003
# What a policy makes of it afterwards comes on top.
_LEARNING = 1.5
_LONGEST_REST = 32


class Pace:
    """Counts rounds that asked for nothing, and lets plain ones follow without asking.

    What asking takes beside looks is the drafter's time of such rounds: a few microseconds,
    which is nothing beside a pass of a large target and a few percent of a small one's.
    """

    def __init__(self) -> None:
        self._ask_s = RunningMedian(15, [0.0])
        self._barren = self._resting = 0

    def begin(self) -> None:
        """Another text."""
        self._barren = self._resting = 0

    def rest(self) -> bool:
        """Whether this round is plain, without asking."""
        if self._resting:
            self._resting -= 1
            return True
        return False

    def observe(self, record: RoundRecord, plain_s: float, *, looked: bool) -> None:
        """A round that asked ended; ``looked``: its drafter's time is more than asking."""
        if record.drafted:
            self._barren = 0
            return
        self._barren += 1
        if not looked:
            self._ask_s.add(record.draft_s)
        if self._barren >= _BARREN:
            rounds = _LEARNING * self._ask_s.value / (_SHARE * plain_s)
            self._resting = min(int(rounds), _LONGEST_REST)
