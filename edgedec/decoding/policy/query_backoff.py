"""Decides how often to query drafters while none of them drafts anything."""

from __future__ import annotations

from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import LONG, RunningMedian

# Rounds in a row without a draft, after which queries are rationed: predictable text
# has a draft in most rounds. Half as many in a text that follows one which ended without drafts.
_PATIENCE, _PATIENCE_AGAIN = 8, 4
# Share of plain decoding's time that queries may then take, as much as probes may.
_SHARE = 0.002
# Time of a query, the policy's own included, relative to the drafter's: they take about the same.
_WHOLE = 2.0
# Longest pause in rounds, at first and in the end: each pause in a row is twice as long, since a
# text that has become predictable should not wait long to show it.
_FIRST_PAUSE, _LONGEST_PAUSE = 12, 64


class QueryBackoff:
    """Runs plain rounds without a query while nothing is drafted.

    Besides peeks, a query costs the drafter's time in rounds that draft nothing: a few
    microseconds, negligible for a large target and a few percent of a small one's pass.
    """

    def __init__(self) -> None:
        self._query_s = RunningMedian(LONG, [0.0])
        self._rounds_without_draft = self._pause = 0
        self._longest = _FIRST_PAUSE

    def begin(self) -> None:
        """Start another text, which is taken to be like the last one."""
        again = self._rounds_without_draft >= _PATIENCE
        self._rounds_without_draft = _PATIENCE - _PATIENCE_AGAIN if again else 0
        self._pause = 0
        self._longest = _FIRST_PAUSE

    def pauses(self) -> bool:
        """Return whether this round is plain, without a query."""
        if self._pause:
            self._pause -= 1
            return True
        return False

    def observe(self, record: RoundRecord, plain_s: float, *, peeked: bool) -> None:
        """Learn from a round with a query; if ``peeked``, its drafter's time includes peeks."""
        if record.drafted:
            self._rounds_without_draft = 0
            self._longest = _FIRST_PAUSE
            return
        self._rounds_without_draft += 1
        if not peeked:
            self._query_s.add(record.draft_s)
        if self._rounds_without_draft >= _PATIENCE:
            rounds = _WHOLE * self._query_s.value / (_SHARE * plain_s)
            self._pause = min(max(0, int(rounds) - 1), self._longest)
            self._longest = min(2 * self._longest, _LONGEST_PAUSE)
