"""Estimates a plan's speed by formula: a round's expected tokens over its measured seconds.

They decide which plans are worth running. The formula ignores a draft's confidence, assumes that
the time of a pass depends on its number of rows only, and does not know how much two models that
share a machine slow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import PlanError
from edgedec.planning.memory_fit import footprint
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan, Prediction
from edgedec.records.profile import Measured, Profile
from edgedec.records.rounds import DrafterRounds, Drafts
from edgedec.records.workload import Workload

# Seconds of a pass over this many rows.
Seconds = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of an average round.

    Attributes:
        target_s, draft_s, overhead_s: seconds in target passes, in the draft model while the
            target is idle, and outside both.

    """

    tokens: float
    target_s: float
    draft_s: float
    overhead_s: float

    @property
    def seconds(self) -> float:
        """Time of the round: both models and the overhead outside them."""
        return self.target_s + self.draft_s + self.overhead_s

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class Forecast:
    """Estimates for plans on one machine, for one workload."""

    def __init__(self, profile: Profile, workload: Workload) -> None:
        self.profile, self.workload = profile, workload
        self._rounds = {
            (one.drafter, one.draft_length is None): one for one in _nearest(profile, workload)
        }
        self._estimates: dict[Plan, Estimate] = {}

    def knows(self, drafter: str) -> bool:
        """Return whether the drafter's rounds were measured."""
        return any((drafter, auto) in self._rounds for auto in (True, False))

    def predict(self, plan: Plan) -> Prediction:
        """Predict tokens per second, seconds to the first token, and bytes of a full context.

        Raises:
            PlanError: the drafter's rounds were not measured.
            ProfileError: the plan uses a place that was not measured.

        """
        estimate = self.estimate(plan)
        return Prediction(
            tokens_per_second=estimate.rate,
            ttft_s=self._ttft_s(plan),
            peak_bytes=footprint(self.profile, plan, self._context(plan)).total,
            block_efficiency=estimate.tokens,
        )

    def estimate(self, plan: Plan) -> Estimate:
        """Estimate an average round.

        A plan whose length is decided each round is assumed to be as fast as the best fixed length
        or the policy's measured rounds, and a composite that decides as fast as its best part.
        """
        if plan not in self._estimates:
            options = list(self._options(plan))
            if not options:
                raise PlanError(f"the rounds of drafter {plan.drafter!r} were not measured")
            self._estimates[plan] = max(options, key=lambda found: found.rate)
        return self._estimates[plan]

    def _options(self, plan: Plan) -> Iterator[Estimate]:
        if plan.plain:
            yield Estimate(1.0, self._target(plan)(1), 0.0, self._overhead_s(plan))
            return
        info = drafting.info(plan.drafter)
        if plan.draft_length is not None:
            # An overlapped draft stops waiting where more tokens do not pay.
            shortest = 1 if plan.schedule == OVERLAPPED else plan.draft_length
            for length in range(shortest, plan.draft_length + 1):
                yield from self._fixed(replace(plan, draft_length=length))
            return
        overhead_s = self._overhead_s(plan)
        for auto in (True, False):
            known = self._rounds.get((plan.drafter, auto))
            if known is not None and plan.schedule != OVERLAPPED:
                yield replace(self._as_measured(plan, known), overhead_s=overhead_s)
        for length in info.lengths:
            for found in self._fixed(replace(plan, draft_length=length)):
                yield replace(found, overhead_s=overhead_s)
        for part in () if info.lengths else info.parts:
            for found in self._options(replace(plan, drafter=part)):
                yield replace(found, overhead_s=overhead_s)

    # -- one round ------------------------------------------------------------------------------

    def _as_measured(self, plan: Plan, known: DrafterRounds) -> Estimate:
        """Estimate rounds at these places from rounds that were measured at others."""
        target, below = self._target(plan), math.floor(known.rows)
        target_s = target(below)
        if known.rows > below:
            target_s += (known.rows - below) * (target(below + 1) - target_s)
        draft_s = 0.0
        if known.draft_passes and drafting.info(plan.drafter).needs_weights:
            draft_s = known.draft_passes * self._draft_token_s(plan)
        return Estimate(known.tokens, target_s, draft_s, known.overhead_s)

    def _fixed(self, plan: Plan) -> Iterator[Estimate]:
        """Yield the estimate of a chain, if chains of this drafter were measured."""
        length = plan.draft_length or 0
        known = self._rounds.get((plan.drafter, False))
        if known is None or drafting.info(plan.drafter).branches:
            return
        target, plain_share = self._target(plan), 1.0
        target_s, draft_s, tokens = 0.0, 0.0, 1.0
        for drafts in known.drafts:
            model_s = 0.0
            verify_s = target(math.ceil(min(drafts.nodes, length)) + 1)
            if drafting.info(drafts.source).needs_head:
                # The pairs that it lacks ride along with the first token.
                model_s = length * self._draft_token_s(plan)
            elif drafting.info(drafts.source).needs_model:
                model_s = self._model_s(plan, drafts) + self._lag_s(plan, known, drafts)
                if plan.schedule == OVERLAPPED:
                    verify_s, model_s = self._overlap(plan, drafts, verify_s, model_s)
            target_s += drafts.share * verify_s
            draft_s += drafts.share * model_s
            tokens += drafts.accepted(length)
            plain_share -= drafts.share
        target_s += max(plain_share, 0.0) * target(1)
        yield Estimate(tokens, target_s, draft_s, known.overhead_s)

    def _model_s(self, plan: Plan, drafts: Drafts) -> float:
        """Return the time to draft a chain, in seconds."""
        length = plan.draft_length or 0
        if drafting.info(drafts.source).needs_mask:
            return self._draft(plan)(length)
        one_s, whole = self._draft_token_s(plan), drafts.whole(length)
        # After a fully accepted chain, its last token is prefilled with the next root.
        return length * one_s + whole * (self._draft(plan)(2) - self._draft(plan)(1))

    def _lag_s(self, plan: Plan, known: DrafterRounds, own: Drafts) -> float:
        """Return the time the draft model needs to prefill tokens that other drafters drafted."""
        length = plan.draft_length or 0
        others = [one for one in known.drafts if not drafting.info(one.source).needs_model]
        if plan.schedule == OVERLAPPED or not others or not own.share:
            return 0.0
        written = sum(other.share + other.accepted(length) for other in others)
        draft = self._draft(plan)
        return draft(1 + round(written / own.share)) - draft(1)

    def _overlap(
        self, plan: Plan, drafts: Drafts, verify_s: float, model_s: float
    ) -> tuple[float, float]:
        """Return the time of the target, and of the draft beyond it, when both run at once.

        The draft continues from its own guess of the target's next token (PEARL, 2408.11850). If
        the guess holds, the next draft is ready when the target finishes, or soon after; otherwise
        the target waits for a new one.
        """
        assert plan.draft is not None
        of_target, of_draft = self.profile.slowdown(plan.target, plan.draft)
        at_once_s, ahead_s = verify_s * of_target, model_s * of_draft
        holds = drafts.whole((plan.draft_length or 0) + 1)
        waits_s = holds * max(0.0, ahead_s - at_once_s) + (1 - holds) * model_s
        return at_once_s, waits_s

    # -- measured seconds -----------------------------------------------------------------------

    def _overhead_s(self, plan: Plan) -> float:
        """Return a round's time outside both models, in seconds."""
        keys = [(plan.drafter, plan.draft_length is None), (plan.drafter, False), (PLAIN, False)]
        return next((self._rounds[key].overhead_s for key in keys if key in self._rounds), 0.0)

    def _draft_token_s(self, plan: Plan) -> float:
        if drafting.info(plan.drafter).needs_head:
            return self._head(plan).seconds(1, self.workload.middle) + self.profile.head_overhead_s
        return self._draft(plan)(1) + self.profile.draft_overhead_s

    def _target(self, plan: Plan) -> Seconds:
        return self._seconds("target", plan.target)

    def _draft(self, plan: Plan) -> Seconds:
        if plan.draft is None:
            raise PlanError(f"{plan.label}: the drafter {plan.drafter} needs a place for its model")
        return self._seconds("draft", plan.draft)

    def _head(self, plan: Plan) -> Measured:
        found = self.profile.head_beside(plan.target)
        if found is None:
            raise PlanError(f"{plan.label}: the drafter {plan.drafter} needs a head, measured here")
        return found

    def _seconds(self, role: str, place: Place) -> Seconds:
        """Return the times of a model's passes, with the cache filled to the workload's middle."""
        measured, context = self.profile.at(role, place), self.workload.middle
        return lambda rows: measured.seconds(rows, context)

    def _context(self, plan: Plan) -> int:
        limit = self.profile.at("target", plan.target).max_context
        return self.workload.max_context or limit

    def _ttft_s(self, plan: Plan) -> float:
        """Return the time of both models' prefill and of the first round, in seconds."""
        tokens = self.workload.prompt_tokens - 1
        target_s = tokens * self.profile.at("target", plan.target).prefill_s
        draft_s = 0.0
        if plan.draft is not None:
            draft_s = tokens * self.profile.at("draft", plan.draft).prefill_s
        elif drafting.info(plan.drafter).needs_head:
            draft_s = tokens * self._head(plan).prefill_s
        at_once = plan.schedule == OVERLAPPED
        prefill_s = max(target_s, draft_s) if at_once else target_s + draft_s
        return prefill_s + self.estimate(plan).seconds


def _nearest(profile: Profile, workload: Workload) -> list[DrafterRounds]:
    """Return the rounds at the temperature nearest to the workload's."""
    apart = {abs(one.temperature - workload.temperature) for one in profile.rounds}
    return [
        one for one in profile.rounds if abs(one.temperature - workload.temperature) == min(apart)
    ]
