"""Picks the plans that are worth running for real, and the best of those that ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from edgedec.records.plan import Candidate, Plan, Trial

# Plans that run once; those that go on are ``planning.running.FINALISTS``.
_MOST = 7
# By formula, relative to the best plan: below it, a plan does not run. The formula was wrong by up
# to a third where Python's own time is most of a round.
_WORTH_RUNNING = 0.6
# A length decided each round adapts to the text, down to plain decoding where drafts fail; a fixed
# length must be faster by more than this factor, and any draft than plain decoding.
_AUTO_IS_WORTH, _DRAFTS_MUST_GAIN = 0.99, 1.02


@dataclass(frozen=True, slots=True)
class Trials:
    """The results of running plans.

    Attributes:
        found: each plan's speed, or why it failed; what did not run is missing.
        note: why there are no speeds; empty if there are.
        busy: share of the processor that other programs used meanwhile, 0 to 1; None if unknown.

    """

    found: Mapping[Plan, Trial | str] = field(default_factory=dict)
    note: str = ""
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class WeighedCandidate:
    """A candidate and the figures behind it.

    Attributes:
        candidate: as the decision lists it.
        context: its context length in tokens.

    """

    candidate: Candidate
    context: int

    @property
    def plan(self) -> Plan:
        """The candidate's plan."""
        return self.candidate.plan

    @property
    def rate(self) -> float:
        """Tokens per second, measured or by formula."""
        return self.candidate.tokens_per_second

    @property
    def predicted(self) -> float:
        """Tokens per second by formula."""
        return self.candidate.prediction.tokens_per_second


def best_first(weighed: WeighedCandidate) -> tuple[float, bool, int, str]:
    """Return a sort key by speed; among equals, decided lengths and small plans come first."""
    plan = weighed.plan
    fixed = plan.draft_length is not None and not plan.plain
    return -weighed.rate, fixed, weighed.candidate.prediction.peak_bytes, plan.label


def contenders(usable: Iterable[WeighedCandidate]) -> list[WeighedCandidate]:
    """Return the plans to run: the fastest plain one, then the best others by formula.

    Plans that differ in the draft model's place alone, in a fixed length, or in the cores that as
    many threads are pinned to, are nearly equal: one of them runs.
    """
    ordered = sorted(usable, key=best_first)
    plain = [one for one in ordered if one.plan.plain]
    best = max(one.rate for one in ordered)
    found = {_kind(plain[0].plan): plain[0]}
    for one in ordered:
        if one.rate >= _WORTH_RUNNING * best and len(found) < _MOST:
            found.setdefault(_kind(one.plan), one)
    return list(found.values())


def _kind(plan: Plan) -> tuple[object, ...]:
    target = replace(plan.target, cores=None)
    return target, plan.drafter, plan.draft_length is None, plan.schedule


def choose(usable: Iterable[WeighedCandidate]) -> WeighedCandidate:
    """Return the fastest plan; one that drafts must gain something over plain decoding.

    Args:
        usable: plans, at least one of them plain. If some ran to the end, the choice is among them.

    """
    every = list(usable)
    most = max(_turns(one) for one in every)
    plain = min((w for w in every if w.plan.plain), key=lambda w: (-_turns(w), best_first(w)))
    ordered = sorted((one for one in every if _turns(one) == most), key=best_first)
    ahead = [w for w in ordered if not w.plan.plain and w.rate > plain.rate * _DRAFTS_MUST_GAIN]
    if not ahead:
        return plain
    auto = (w for w in ahead if w.plan.draft_length is None)
    return next((w for w in auto if w.rate >= _AUTO_IS_WORTH * ahead[0].rate), ahead[0])


def _turns(one: WeighedCandidate) -> int:
    return 0 if one.candidate.measured is None else one.candidate.measured.turns
