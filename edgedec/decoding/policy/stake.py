"""Bounds what the drafts of one text may lose, whatever was expected of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from edgedec.decoding.policy.base import RoundRecord

# Tokens that a text's drafts may lose in all, and what each round adds: 1.1 in 64 rounds. Chosen by
# replayed texts of published models: with less, predictable texts gain less where rows are dear.
_FIRST, _PER_ROUND = 0.75, 0.005
# As much more after a text that gained by its drafts: else two unlucky ones at its beginning end
# the drafts of a model that has proved itself.
_MOST = 2 * _FIRST
# Share that counts of what drafts that were not afforded would have gained or lost, and the most
# tokens of it: the text shows that as well, but it pays for nothing.
_UNPLAYED, _MOST_UNPLAYED = 0.5, 1.0


class Stake:
    """Lets a draft be made only where the text can pay for it if none of it is accepted.

    A text begins with a small amount in tokens, and each round adds to it what it gained over plain
    decoding, or takes what it lost. Estimates err most in the first rounds of a text, and where a
    further row costs as much as a token, two wrong drafts are a noticeable share of a short one. A
    token that would have been drafted is still compared with the text, so that a text that has
    become predictable is soon drafted.
    """

    def __init__(self) -> None:
        self._losses: Sequence[float] = ()
        self._balance = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin another text, with what the last one had left, as little and as much as stated."""
        self._balance = min(max(self._balance, _FIRST), _MOST)
        self._unplayed = 0.0
        self._passed: tuple[int, float] | None = None

    def prices(self, seconds: Sequence[float]) -> None:
        """Set the seconds of a target pass over 1, 2, ... rows.

        Where more rows take less time than fewer, a draft may get there.
        """
        more = ((one - seconds[0]) / seconds[0] for one in reversed(seconds[1:]))
        self._losses = [*itertools.accumulate(more, min)][::-1]

    def affords(self, drafted: int, spent: float = 0.0) -> bool:
        """Return whether a draft may have one more token than ``drafted``.

        Its peeks have cost ``spent`` tokens.
        """
        return self._losses[drafted] + spent <= self._balance + self._unplayed

    def passed(self, token: int, gain: float) -> None:
        """Note the first token of a draft of this expected gain that was not affordable."""
        self._passed = token, gain

    def settle(self, record: RoundRecord, gained: float) -> None:
        """Account for a round that gained these tokens over plain decoding, or lost them."""
        self._balance += _PER_ROUND + gained  # peeks that drew nothing are lost, too
        if self._passed is not None:
            (token, gain), loss = self._passed, self._losses[0]
            right = bool(record.tokens) and record.tokens[0] == token
            would = max(gain, 1 - loss) if right else -loss
            unplayed = self._unplayed + _UNPLAYED * would
            self._unplayed = min(max(0.0, unplayed), _MOST_UNPLAYED)
            self._passed = None
