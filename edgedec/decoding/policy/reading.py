"""Whether a draft model that lags behind the text should read on: a cost plain decoding has not."""

from __future__ import annotations

from edgedec.decoding.policy.cost import RunningMedian
from edgedec.decoding.policy.source import Source

# At first a token is taken to be read in this share of a draft pass, as wide passes go.
_SHARE_OF_PASS = 0.15
_AT_ONCE = 512
# Tokens a text is expected to have before there were any, and how fast that is learned.
_EXPECTED, _QUICK = 64.0, 0.25
# A drafter that has not shown anything in this text is believed half of what it promises.
_UNPROVEN = 0.5
# Tokens a round that may be spent on reading against the odds.
_ALLOWANCE = 0.002


class Reading:
    """Weighs tokens to read against tokens to gain in what is left of the text.

    Args:
        draft_s: seconds of a draft model's pass over one row.

    Attributes:
        tokens: that are read in this round.

    """

    def __init__(self, draft_s: float) -> None:
        self._token_s = RunningMedian(9, [_SHARE_OF_PASS * draft_s])
        self._expected = _EXPECTED
        self._remaining = 1 << 30
        self._done = self._rounds = self._asks = 0
        self._credit = 0.0
        self.tokens = 0

    def begin(self, remaining: int) -> None:
        """Another text, of so many tokens at most."""
        if self._done:
            self._expected += _QUICK * (self._done - self._expected)
        self._remaining = remaining
        self._done = self._rounds = self._asks = self.tokens = 0

    def round(self, emitted: int) -> None:
        """A round ended."""
        self._done += emitted
        self._rounds += 1
        self._credit += _ALLOWANCE

    def took(self, seconds: float) -> None:
        """What was read in this round took so long."""
        self._token_s.add(max(0.0, seconds) / self.tokens)

    def pays(self, behind: int, source: Source, rate: float) -> bool:
        """Whether to read ``behind`` tokens for a drafter; ``rate``: plain tokens a second."""
        self._asks += 1
        cost = rate * behind * self._token_s.value
        # As long as it has been going on it may go on; a text that has begun is not yet over.
        left = min(self._remaining - self._done, max(self._expected - self._done, self._done, 8))
        rounds = left * self._asks / (self._rounds + 1)
        gain = max(0.0, source.start) * (1.0 if source.tried else _UNPROVEN)
        if gain * rounds < cost * (1 + gain):
            if self._credit < cost:
                return False
            self._credit -= cost
        self.tokens = min(behind, _AT_ONCE)
        return True
