"""Costs of rounds and of catching up with the text, in seconds and in tokens."""

from __future__ import annotations

from edgedec.decoding.drafting.base import PREFILL_AT_ONCE
from edgedec.decoding.pass_times import FURTHER_ROW
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.cost import LONG, CostCurve, LiveCost, RunningMedian
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate

# The speed is averaged over about 30 rounds, as the gain of drafts is: a change of text shows.
_FORGET = 0.97
# A new text takes over the price of a second as if from this many rounds: a sixth of the average.
_CARRIED = 5.0
# Prefills that a median covers.
_PREFILLS = 9
# Initial estimate of a text's length in tokens, and its learning rate: about the last four texts.
_EXPECTED, _LENGTH_RATE = 64.0, 0.25
# Trust in the estimate of a drafter that has not drafted in this text: it suits every second one.
_UNPROVEN = 0.5
# Tokens per round that may be spent on a prefill that the estimates do not justify, as on probes.
_ALLOWANCE = 0.002


class RoundCost:
    """Seconds of target passes and of the work around them, and the tokens a second is worth.

    Args:
        target: seconds of a target pass by its rows.
        most: most drafted tokens of a round.

    """

    def __init__(self, target: CostCurve, most: int) -> None:
        self._cost, self._most = LiveCost(target, most + 1), most
        # Seconds of a round outside the models, by drafter; "" is none.
        self._overheads: dict[str, RunningMedian] = {}
        # Recent tokens and their seconds; begins with a few plain rounds.
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
    def slowdown(self) -> float:
        """Current pass time relative to calibration; peeks are kept in calibrated seconds."""
        return self._cost.slowdown

    def begin(self) -> None:
        """Begin another text: measurements of the last one keep a small weight."""
        share = _CARRIED * self.plain_s / self._seconds
        self._tokens, self._seconds = share * self._tokens, share * self._seconds

    def observe(self, record: RoundRecord, peeks_s: float) -> float:
        """Learn from a round with ``peeks_s`` seconds of peeks; return the seconds it usually
        takes.

        The result is modelled, not measured, so that one long pause does not look like a slow
        policy.
        """
        self._cost.observe(record.rows, record.target_s)
        overhead = self._overhead(record.source if record.drafted else "")
        overhead.add(record.total_s - record.target_s - record.draft_s)
        seconds = self._cost.at(min(record.rows, self._most + 1)) + peeks_s + overhead.value
        self._tokens = _FORGET * self._tokens + record.emitted
        self._seconds = _FORGET * self._seconds + seconds
        return seconds

    def seconds(self) -> list[float]:
        """Return the seconds of a target pass over 1, 2, ... ``most + 1`` rows."""
        return [self._cost.at(rows) for rows in range(1, self._most + 2)]

    def price(self) -> float:
        """Return the tokens that a second is worth: current speed, at least plain decoding's."""
        return max(self._tokens / self._seconds, 1 / self.plain_s)

    def extra_s(self, name: str) -> float:
        """Return the additional seconds, outside the models, of a round with this drafter."""
        return max(0.0, self._overhead(name).value - self._overhead("").value)

    def _overhead(self, name: str) -> RunningMedian:
        known = self._overheads.get(name)
        if known is None:
            known = self._overheads[name] = RunningMedian(LONG, [0.0])
        return known


class CatchUpCost:
    """Decides whether a draft model that lags behind should prefill the text.

    It weighs the cost of prefilling, which plain decoding does not need, against the tokens to be
    gained in the rest of the text.

    Args:
        draft_s: seconds of a draft model's pass over one row.

    Attributes:
        tokens: number prefilled in this round.

    """

    def __init__(self, draft_s: float) -> None:
        self._token_s = RunningMedian(_PREFILLS, [FURTHER_ROW * draft_s])
        self._expected = _EXPECTED
        self._remaining = 1 << 30
        self._done = self._rounds = self._queries = 0
        self._credit = 0.0
        self.tokens = 0

    def begin(self, remaining: int) -> None:
        """Begin another text of at most ``remaining`` tokens."""
        if self._done:
            self._expected += _LENGTH_RATE * (self._done - self._expected)
        self._remaining = remaining
        self._done = self._rounds = self._queries = self.tokens = 0

    def round(self, emitted: int) -> None:
        """Count a round."""
        self._done += emitted
        self._rounds += 1
        self._credit += _ALLOWANCE

    def took(self, seconds: float) -> None:
        """Learn how long this round's prefill took."""
        self._token_s.add(max(0.0, seconds) / self.tokens)

    def pays(self, behind: int, drafter: DrafterEstimate, rate: float) -> bool:
        """Return whether to prefill ``behind`` tokens for a drafter, at ``rate`` plain tokens/s."""
        self._queries += 1
        cost = rate * behind * self._token_s.value
        # A text is expected to go on for as long as it has lasted, but not to end right after it
        # begins.
        left = min(self._remaining - self._done, max(self._expected - self._done, self._done, 8))
        rounds = left * self._queries / (self._rounds + 1)
        gain = max(0.0, drafter.gain) * (1.0 if drafter.tried else _UNPROVEN)
        if gain * rounds < cost * (1 + gain):
            if self._credit < cost:
                return False
            self._credit -= cost
        self.tokens = min(behind, PREFILL_AT_ONCE)
        return True
