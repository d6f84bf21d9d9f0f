"""Definitions of terms, and the figures of one generation.

The models are the target and the draft; p is a target probability, q a draft probability.

========================  =====================================================================
draft_length              drafted tokens in a round
acceptance_rate           accepted / drafted tokens
accepted_length           accepted draft tokens in a round, without the bonus token
block_efficiency          emitted tokens / target passes (plain decoding: 1.0)
bonus token               the target's own token after a draft that was accepted whole
recovered token           the target's own token after a rejection
root                      the last emitted token, whose keys and values are not cached yet
pending                   nodes computed but not committed
commit, rollback          keep pending nodes; go back to an absolute length
reused_tokens             first tokens of the prompt that the target had cached from an earlier
                          request and did not compute again; TTFT covers prefilling the others
reuse hit                 a round whose emitted tokens an overlapped draft had precomputed while
                          the target verified; ``reuse_rate`` is their share of all rounds
TTFT (``ttft_s``)         start of decoding (a stream's first read) to first token, with prefill
TPOT (``tpot_s``)         seconds per token after the first round, over the tokens after it
tokens_per_second         1 / TPOT
waited_s                  the longest time that one thread of the process was ready to run and
                          waited for a core; its share of the time from the first read to the
                          end (``watched_s``) measures how busy the machine was
slowdown                  pass time at the end of the text relative to the calibration at opening
speed-up                  plain TPOT / speculative TPOT: same path, same prompts, tokens counted
                          the same way on both sides
``speedup_estimate``      the same ratio estimated from one text's own rounds: a plain round's time
                          (the median of the text's single-row rounds without the draft's share;
                          if those are fewer than five, a single-row pass as the policy measured
                          it and the text's own time outside the models) times the tokens after
                          the first round, over the rounds' time at the median of their width;
                          None if no single-row pass was measured, if a draft computes while the
                          target does, if a thread waited for a core for more than 30% of the
                          rounds' time, and above 1.1 times the tokens of a round
========================  =====================================================================

Why TPOT leaves out the whole first round: its tokens arrive with the first one, so counting
them would credit speculation with prefill's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.policy import DraftPolicy, RoundRecord
from edgedec.decoding.tree import Draft

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


# Largest share of time that a thread may wait for a core if rounds are to be comparable; and how
# far an estimate may exceed the tokens of a round.
_DISTURBED, _MOST = 0.3, 1.1


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A change of how much memory decoding may use.

    Attributes:
        kind: ``retreat`` or ``return``.
        before, after: the memory level before and after, in words.
        reason: why it changed.
        bytes: resident memory of the process then, or the amount expected.
        emitted: tokens emitted before it.

    """

    kind: str
    before: str
    after: str
    reason: str
    bytes: int
    emitted: int


@dataclass(slots=True)
class MemoryRecord:
    """Memory of one generation that was decoded within a limit.

    Attributes:
        granted: bytes that the process may hold.
        account: expected peak in bytes, by part.
        most: measured peak in bytes.
        events: retreats and returns, in order.

    """

    granted: int
    account: dict[str, int]
    most: int = 0
    events: list[MemoryEvent] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return {
            "granted_bytes": self.granted,
            "expected_bytes": sum(self.account.values()),
            "parts": self.account,
            "seen_bytes": self.most,
            "events": [asdict(event) for event in self.events],
        }


@dataclass(slots=True)
class Metrics:
    """Figures of one generation, filled while it runs. Times in seconds.

    Attributes:
        ttft_s: start of decoding to first token; 0 until there is one.
        reused_tokens: tokens of the prompt that were cached from an earlier request.
        prefill_tokens_left: tokens of the prompt still to be computed; 0 before decoding starts
            and after prefill.
        decode_s: time of all rounds but the first, without the time of the stream's reader.
        emitted: tokens emitted in all; ``first_round`` of them in the first round.
        draft_s, target_s, rounds_s: time in the drafter, in target passes, and in whole rounds with
            the policy's work; what the rounds add to the first two is the engine's overhead.
        accepted_lengths: number of rounds by accepted length.
        forced_tokens: tokens emitted without a draft or a pass, since a constraint left no choice.
        sources: drafted tokens by the drafter that made them.
        reuse_hits: rounds whose emitted tokens an overlapped draft had precomputed while the target
            verified, so that the next draft was ready at once.
        ahead_s: time of an overlapped draft's passes; ``overlapped_s`` of it during the target's
            passes. ``draft_s`` is then the time that rounds waited for drafts.
        waited_s: longest wait of one thread for a core; None if the system does not count it.
        watched_s: the time over which that was counted, including that of the stream's reader.
        slowdown: pass time relative to calibration; None without calibration.
        slowed_by: "heat" or "under-voltage" if the processor's clock was lowered at the end of a
            text of a second or more; else empty.
        swapped_bytes: memory of this process that was in swap then.
        memory: how memory was used; None without a limit.
        round_times: times of the rounds after the first, for ``speedup_estimate``.

    """

    ttft_s: float = 0.0
    reused_tokens: int = 0
    prefill_tokens_left: int = field(default=0, compare=False)
    decode_s: float = 0.0
    emitted: int = 0
    first_round: int = 0
    target_passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forced_tokens: int = 0
    draft_s: float = 0.0
    target_s: float = 0.0
    rounds_s: float = 0.0
    accepted_lengths: Counter[int] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    reuse_hits: int = 0
    ahead_s: float = 0.0
    overlapped_s: float = 0.0
    waited_s: float | None = None
    watched_s: float = 0.0
    slowdown: float | None = None
    slowed_by: str = ""
    swapped_bytes: int = 0
    memory: MemoryRecord | None = None
    round_times: RoundTimes = field(default_factory=RoundTimes, compare=False)

    @property
    def unread_tokens(self) -> int:
        """The former name of ``prefill_tokens_left``, for a release."""
        return self.prefill_tokens_left

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        """Add one round that took ``total_s`` seconds, including the policy's share."""
        self.round_times.observe(record, total_s, lone_row_s)
        if self.target_passes == 0:
            self.first_round = record.emitted
        else:
            self.decode_s += total_s
        self.target_passes += 1
        self.emitted += record.emitted
        self.drafted_tokens += record.drafted
        self.accepted_tokens += record.accepted
        self.forced_tokens += record.forced
        self.draft_s += record.draft_s
        self.target_s += record.target_s
        self.rounds_s += total_s
        self.accepted_lengths[record.accepted] += 1
        if record.drafted:
            self.sources[record.source] += record.drafted

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens; 0 if nothing was drafted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def block_efficiency(self) -> float:
        """Emitted tokens / target passes."""
        return self.emitted / self.target_passes if self.target_passes else 0.0

    @property
    def reuse_rate(self) -> float:
        """Reuse hits / rounds; 0 without overlapping."""
        return self.reuse_hits / self.target_passes if self.target_passes else 0.0

    @property
    def tpot_s(self) -> float:
        """Seconds per token after the first round; 0 if there are none."""
        after = self.emitted - self.first_round
        return self.decode_s / after if after else 0.0

    @property
    def tokens_per_second(self) -> float:
        """1 / TPOT; 0 if there is none."""
        return 1.0 / self.tpot_s if self.tpot_s else 0.0

    @property
    def speedup_estimate(self) -> float | None:
        """Estimated speed-up over plain decoding; None if no honest estimate is possible."""
        # An overlapped draft also slows the target's single-row passes, and other processes that
        # occasionally take the cores affect one width and not the other.
        rounds_s = self.ttft_s + self.decode_s
        if self.ahead_s or (self.waited_s or 0.0) > _DISTURBED * rounds_s:
            return None
        found = self.round_times.speedup
        # A round takes at least a plain one's time: a ratio above its tokens is a measuring error.
        if found is None or found > _MOST * max(self.block_efficiency, 1.0):
            return None
        return found

    @property
    def waited_share(self) -> float:
        """Share of ``watched_s`` that a thread waited for a core; 0 if that is not counted."""
        seconds = max(self.watched_s, self.ttft_s + self.decode_s)
        return (self.waited_s or 0.0) / seconds if seconds else 0.0

    @property
    def engine_s(self) -> float:
        """Time of the rounds spent in neither target nor drafter, in seconds."""
        return self.rounds_s - self.draft_s - self.target_s


class RoundLog:
    """Times a request's rounds, and records them for the policy and the metrics."""

    def __init__(self, clock: Callable[[], float], policy: DraftPolicy, metrics: Metrics) -> None:
        self._clock, self._policy, self._metrics = clock, policy, metrics
        self._started = clock()

    def end(
        self, times: Sequence[float], draft: Draft, verdict: Verdict, kept: Sequence[int],
        ahead: int,
    ) -> None:  # fmt: skip
        """Record a round whose pass also computed ``ahead`` tokens that were emitted before.

        ``times``: of its beginning, of the end of drafting, and of the end of the target's pass.
        """
        now, (begin, drafted, verified) = self._clock(), times
        tree, accepted = draft.tree, len(verdict.path) - 1
        nodes = len(tree.tokens)
        record = RoundRecord(
            drafted=nodes - 1,
            depth=nodes - 1 if tree.is_chain else max(tree.depths),
            accepted=min(accepted, len(kept)),
            emitted=len(kept),
            rows=ahead + nodes,
            draft_s=drafted - begin,
            target_s=verified - drafted,
            total_s=now - begin,
            source=draft.source,
            path=verdict.path,
            tokens=kept,
            forced=max(0, len(kept) - accepted - 1),
        )
        self._policy.observe(record)
        # Deciding how much to draft is part of the round's time.
        self._metrics.observe(record, self._clock() - begin, self._policy.lone_row_s)
        if self._metrics.target_passes == 1:
            self._metrics.ttft_s = now - self._started
