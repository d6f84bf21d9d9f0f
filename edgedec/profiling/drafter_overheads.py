"""Measures a round's overhead outside its passes, by drafter, while decoding.

The loop, the sampler, the drafter and the policy take time, and a pass in a loop that does other
work between passes is slower than one right after another. Both are measured round by round: the
time outside passes, and how much longer each pass took than the profile says for its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import NamedTuple, cast

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import DraftPolicy, Fixed, MeasuredCost, calibrate
from edgedec.decoding.session import Model, Session
from edgedec.decoding.translation import Translation
from edgedec.errors import EdgedecError
from edgedec.profiling.rounds import TimedPass, TimedRounds, TimedSession
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured
from edgedec.records.trace import Trace
from edgedec.replay.run import decode

_TEXTS, _TOKENS = 3, 64
_LENGTH = 3
# Most that the work outside passes can have slowed the passes, relative to its own time.
_MOST_LONGER = 2.0


class _Round(NamedTuple):
    """Seconds of a round: outside passes, of passes beyond their profile, and already charged by a
    replay for the draft's passes.
    """

    outside_s: float
    longer_s: float
    charged_s: float


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A pair that is open where it was measured.

    Attributes:
        model: the target.
        target: an empty session of it.
        draft: an empty session of the draft, or None.
        translation: between their vocabularies; None if they are the same.
        measured: the records of the target and the draft.
        draft_overhead_s: additional overhead for each token that a draft model drafts.

    """

    model: Model
    target: Session
    draft: Session | None
    translation: Translation | None
    measured: tuple[Measured, Measured | None]
    draft_overhead_s: float

    def plans(self) -> Iterator[Plan]:
        """Yield one plan of each kind that can be decoded here."""
        target, draft = self.measured
        invariant = self.model.capabilities.batch_invariant
        yield Plan(target.place)
        for name in drafting.planned():
            info = drafting.info(name)
            if (info.needs_model and self.draft is None) or (invariant and info.branches):
                continue
            place = draft.place if info.needs_model and draft is not None else None
            for length in (_LENGTH, None):
                yield Plan(target.place, place, name, length)


def drafter_overheads(stage: OpenPair, traces: Sequence[Trace]) -> dict[str, float]:
    """Return seconds per round by ``Plan.kind``, from greedy texts only."""
    texts = [trace for trace in traces if trace.temperature == 0][:_TEXTS]
    if not texts or not stage.measured[0].rolls_back:
        return {}
    policies = _policies(stage)
    found = {}
    for plan in stage.plans():
        try:
            rounds = [one for text in texts for one in _decode(stage, plan, policies, text)]
        except EdgedecError:
            continue  # a kind that this pair does not support
        if rounds:
            found[plan.kind] = _overhead(rounds)
    return found


def _overhead(rounds: Sequence[_Round]) -> float:
    """Return the seconds that a replay adds to a round's passes.

    Passes also differ from their profile because the machine's speed drifts, in proportion to their
    own time. What the work between passes costs them is not proportional: threads that went to
    sleep, and caches that this work filled. With the pair that ships it is at most 1.7 times the
    time of that work, for every drafter.
    """
    outside = median(one.outside_s for one in rounds)
    longer = median(one.longer_s for one in rounds)
    charged = mean(one.charged_s for one in rounds)
    return max(0.0, outside + min(max(0.0, longer), _MOST_LONGER * outside) - charged)


def _policies(stage: OpenPair) -> Mapping[bool, DraftPolicy]:
    """Return the draft policies, by whether they decide the length each round."""
    draft_s = None if stage.draft is None else calibrate(stage.draft, widths=(1,)).at(1)
    return {False: Fixed(_LENGTH), True: MeasuredCost(calibrate(stage.target), draft_s)}


def _decode(
    stage: OpenPair, plan: Plan, policies: Mapping[bool, DraftPolicy], text: Trace
) -> list[_Round]:
    """Decode a text; return its rounds but the first, which contains prefill."""
    vocab_size = stage.model.info.vocab_size
    timers = [TimedSession(one) for one in (stage.target, stage.draft) if one is not None]
    for timer in timers:
        timer.rollback(0)
    target, *more = cast(list[Session], timers)
    draft = more[0] if more else None
    branches = stage.model.capabilities.drafted_branches
    parts = DrafterParts(vocab_size, draft, branches, stage.translation)
    policy = Fixed(0) if plan.plain else policies[plan.draft_length is None]
    engine = Engine(target, drafting.create(plan.drafter, parts), policy, GumbelCoupling())
    metrics = TimedRounds(timers)
    decode(engine, text, vocab_size, _TOKENS, metrics)
    rounds = zip(metrics.outside, metrics.passes, strict=True)
    return [_round(stage, outside, passes) for outside, passes in rounds][1:]


def _round(stage: OpenPair, outside_s: float, passes: Sequence[Sequence[TimedPass]]) -> _Round:
    longer = 0.0
    for measured, own in zip(stage.measured, passes, strict=False):
        longer += sum(one.seconds - _expected(measured, one) for one in own if measured)
    drafted = sum(one.scored for one in passes[1]) if len(passes) > 1 else 0
    return _Round(outside_s, longer, drafted * stage.draft_overhead_s)


def _expected(measured: Measured, one: TimedPass) -> float:
    if not one.scored:
        return one.rows * measured.prefill_s
    return measured.seconds(one.rows, one.context)
