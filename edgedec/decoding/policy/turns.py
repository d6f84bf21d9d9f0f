"""Whose turn it is: a drafter that others keep from drafting is tried now and then."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgedec.decoding.policy.source import Source

# Rounds without a drafter after which it may be its turn.
_AFTER = 16
# How many tokens more than it seems to add it might, for a turn to be worth while.
_HOPE = 1.0


class Turns:
    """Counts rounds without a drafter, which pay for trying it."""

    def __init__(self) -> None:
        self._idle: dict[str, int] = {}
        self._unmet: str | None = None

    def meet(self, name: str) -> None:
        """There is a drafter that nobody asked yet."""
        self._unmet = name

    def next(
        self, sources: Mapping[str, Source], far: Collection[str], gain: float, free: float
    ) -> str | None:
        """A drafter that is new, or has waited, may be tried and might be better; None mostly.

        Args:
            sources: all that are known.
            far: those that have too much to read.
            gain: tokens that drafts add to a round as things are.
            free: those whose look costs no more tokens need no turn: they are looked at anyway.

        """
        new, self._unmet = self._unmet, None
        if new is not None:
            return new
        for name, source in sources.items():
            if self._idle.get(name, 0) <= _AFTER or source.look_price < free or name in far:
                continue
            if source.probe_due() and source.start + _HOPE > gain:
                return name
        return None

    def count(self, sources: Mapping[str, Source], drew: Source | None, rounds: int) -> None:
        """So many rounds went by, in the last of which ``drew`` drafted."""
        # The more there are the less each may cost.
        share = 2 / (1 + len(sources)) * rounds
        for name, source in sources.items():
            if source is drew:
                self._idle[name] = 0
            else:
                self._idle[name] = self._idle.get(name, 0) + rounds
                source.wait(share)
