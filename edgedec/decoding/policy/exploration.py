"""Decides when to try an unused drafter, and how often to ask at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import RunningMedian
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate

# Rounds without a drafter after which it may be explored.
_AFTER = 16
# Tokens that it might add beyond its estimate, for exploring it to be worthwhile.
_HOPE = 1.0

# Rounds in a row without a draft, after which asking is rationed: fewer in a text that follows one
# which ended without drafts.
_BARREN, _BARREN_AGAIN = 8, 4
# Share of plain decoding's time that asking may then take.
_SHARE = 0.002
# Time of a question, the policy's own included, relative to the drafter's.
_WHOLE = 2.0
# Most rounds without asking, at first and in the end: each rest in a row is twice as long, since a
# text that has become predictable should not wait long to show it.
_FIRST_REST, _LONGEST_REST = 12, 64


class Exploration:
    """Occasionally picks a drafter that others keep from drafting; rounds without it pay for it."""

    def __init__(self) -> None:
        self._idle: dict[str, int] = {}
        self._unmet: str | None = None

    def meet(self, name: str) -> None:
        """Note a drafter that has never been asked."""
        self._unmet = name

    def next(
        self,
        drafters: Mapping[str, DrafterEstimate],
        far: Collection[str],
        gain: float,
        free: float,
    ) -> str | None:
        """Return the drafter to explore this round, new or long unused; mostly None.

        Args:
            drafters: all that are known.
            far: those that have too much to read.
            gain: tokens that drafts currently add to a round.
            free: a drafter whose look costs no more tokens is looked at anyway.

        """
        new, self._unmet = self._unmet, None
        if new is not None:
            return new
        for name, drafter in drafters.items():
            if self._idle.get(name, 0) <= _AFTER or drafter.look_price < free or name in far:
                continue
            if drafter.probe_due() and drafter.start + _HOPE > gain:
                return name
        return None

    def count(
        self, drafters: Mapping[str, DrafterEstimate], drew: DrafterEstimate | None, rounds: int
    ) -> None:
        """Count ``rounds`` rounds, in the last of which ``drew`` drafted."""
        # The more drafters there are, the less each may cost.
        share = 2 / (1 + len(drafters)) * rounds
        for name, drafter in drafters.items():
            if drafter is drew:
                self._idle[name] = 0
            else:
                self._idle[name] = self._idle.get(name, 0) + rounds
                drafter.wait(share)


class AskingBackoff:
    """Runs plain rounds without asking while nothing is drafted.

    Besides looks, asking costs the drafter's time in rounds that draft nothing: a few microseconds,
    negligible for a large target and a few percent of a small one's pass.
    """

    def __init__(self) -> None:
        self._ask_s = RunningMedian(15, [0.0])
        self._barren = self._resting = 0
        self._most = _FIRST_REST

    def begin(self) -> None:
        """Start another text, which is taken to be like the last one."""
        self._barren = _BARREN - _BARREN_AGAIN if self._barren >= _BARREN else 0
        self._resting = 0
        self._most = _FIRST_REST

    def rest(self) -> bool:
        """Return whether this round is plain, without asking."""
        if self._resting:
            self._resting -= 1
            return True
        return False

    def observe(self, record: RoundRecord, plain_s: float, *, looked: bool) -> None:
        """Learn from a round that asked; if ``looked``, its drafter's time includes looks."""
        if record.drafted:
            self._barren = 0
            self._most = _FIRST_REST
            return
        self._barren += 1
        if not looked:
            self._ask_s.add(record.draft_s)
        if self._barren >= _BARREN:
            rounds = _WHOLE * self._ask_s.value / (_SHARE * plain_s)
            self._resting = min(max(0, int(rounds) - 1), self._most)
            self._most = min(2 * self._most, _LONGEST_REST)
