"""Pauses the draft's thread while it slows the target by more than its drafts gain."""

from __future__ import annotations

# Rounds before the first trial, and most rounds between trials: one that changes nothing doubles
# the distance.
_FIRST, _LAST = 24, 1024
# Rounds of a trial at rest, and of one with drafting ahead. The policy's slowdown is a median of
# seven passes.
_AT_REST, _AHEAD = 8, 16
_SETTLES = 8
_FORGET = 0.97
# Relative speed-up that resting must promise; its estimate neglects about a percent.
_MARGIN = 0.03


class ContentionControl:
    """Decides by trials whether drafting ahead pays, round by round.

    The target's passes are slower while the draft computes on the same cores, memory or host. A
    trial rests the draft for a few rounds and measures the slowdown without it. The speed that the
    rounds before would have had at rest is then computed, without the noise of different text: a
    round drafted by the draft model would have been a single-row round, the others would have
    emitted the same tokens, and all would have been faster.

    Attributes:
        resting: whether the draft rests in the next round.

    """

    def __init__(self) -> None:
        self.resting = self._trial = False
        self._left, self._distance, self._round = _FIRST, 2 * _FIRST, 0
        # The target's slowdown, at rest and with the draft ahead.
        self._slowdown = {True: 1.0, False: 1.0}
        self._tokens = self._seconds = self._tokens_at_rest = self._seconds_at_rest = 0.0

    def observe(
        self, tokens: int, seconds: float, lone_row_s: float, slowdown: float, *, by_model: bool
    ) -> None:
        """Learn from a round.

        Args:
            lone_row_s: current time of a single-row target pass, in seconds.
            slowdown: current time of target passes relative to calibration.
            by_model: whether the draft model made the draft.

        """
        self._round += 1
        self._left -= 1
        self._slowdown[self.resting] = slowdown
        if not self.resting and self._round > _SETTLES:
            self._tokens = _FORGET * self._tokens + tokens
            self._seconds = _FORGET * self._seconds + seconds
            at_rest = (1, lone_row_s) if by_model else (tokens, seconds)
            self._tokens_at_rest = _FORGET * self._tokens_at_rest + at_rest[0]
            self._seconds_at_rest = _FORGET * self._seconds_at_rest + at_rest[1]
        if self._left <= 0:
            self._turn()

    def _turn(self) -> None:
        """End a trial with a decision, or begin one."""
        before, self._round = self.resting, 0
        if self._trial:
            self.resting = self._rest_pays()
            self._left, self._distance = self._distance, min(2 * self._distance, _LAST)
        else:
            self.resting = not before
            self._left = _AT_REST if self.resting else _AHEAD
        self._trial = not self._trial

    def _rest_pays(self) -> bool:
        if not self._seconds:
            return self.resting
        factor = self._slowdown[False] / self._slowdown[True]
        at_rest = self._tokens_at_rest * factor / self._seconds_at_rest
        return at_rest > (1 + _MARGIN) * self._tokens / self._seconds
