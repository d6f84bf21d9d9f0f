"""Measures a round's overhead outside its passes, by drafter: decoded texts against their replay.

The loop, the sampler, the drafter and the policy take time, and a pass in a loop that does other
work between passes is slower than one right after another. The difference between decoding a text
and replaying it at the measured pass times contains both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, Fixed, MeasuredCost, calibrate
from edgedec.decoding.session import Model, Session
from edgedec.decoding.translation import Translation
from edgedec.errors import EdgedecError
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured
from edgedec.records.trace import Trace
from edgedec.replay.run import ReplaySetting, decode, replay

_TEXTS, _TOKENS = 3, 64
_LENGTH = 3


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A pair that is open where it was measured.

    Attributes:
        model: the target.
        target: an empty session of it.
        draft: one of the draft, or None. translation: between their vocabularies, if they differ.
        measured: the target, the draft.
        draft_overhead_s: additional, for each token that a draft model drafts.

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
        invariant = self.model.capabilities.row_invariant
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
    target, draft = stage.measured
    setting = ReplaySetting(target, draft, draft_overhead_s=stage.draft_overhead_s)
    found = {}
    for plan in stage.plans():
        bare = setting if plan.draft is not None else replace(setting, draft=None)
        try:
            real = [_decode(stage, plan, policies, text) for text in texts]
            virtual = replay(bare, plan, texts, _TOKENS)
        except EdgedecError:
            continue  # a kind that this pair does not support
        found[plan.kind] = max(0.0, _round_s(real) - _round_s(virtual))
    return found


def _policies(stage: OpenPair) -> Mapping[bool, DraftPolicy]:
    """Return the draft policies by whether they decide each round."""
    draft_s = None if stage.draft is None else calibrate(stage.draft, widths=(1,)).at(1)
    return {False: Fixed(_LENGTH), True: MeasuredCost(calibrate(stage.target), draft_s)}


def _decode(
    stage: OpenPair, plan: Plan, policies: Mapping[bool, DraftPolicy], text: Trace
) -> Metrics:
    vocab_size = stage.model.info.vocab_size
    stage.target.rollback(0)
    if stage.draft is not None:
        stage.draft.rollback(0)
    branches = stage.model.capabilities.drafted_branches
    parts = DrafterParts(vocab_size, stage.draft, branches, stage.translation)
    policy = Fixed(0) if plan.plain else policies[plan.draft_length is None]
    drafter = drafting.create(plan.drafter, parts)
    engine = Engine(stage.target, drafter, policy, GumbelCoupling())
    return decode(engine, text, vocab_size, _TOKENS)[1]


def _round_s(texts: Sequence[Metrics]) -> float:
    """Return the mean seconds of a round, without the first round of each text."""
    rounds = sum(text.target_passes - 1 for text in texts)
    return sum(text.decode_s for text in texts) / max(1, rounds)
