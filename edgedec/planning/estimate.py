"""Estimates of a plan by formula: expected tokens of a round over its measured seconds.

They only decide which plans are worth a replay of the real loop: the formula ignores a draft's
confidence and assumes that a pass's time depends on its number of rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import LENGTHS
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.errors import PlanError
from edgedec.planning.drafts import DraftReplay, Drafts, child_chances, measure
from edgedec.planning.memory_fit import footprint
from edgedec.planning.sizes import Seconds, Size, Trees, best_tree
from edgedec.planning.survival import Survival
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan, Prediction
from edgedec.records.profile import NOT_AT_ONCE, Profile
from edgedec.records.trace import Trace
from edgedec.records.workload import Workload

# Limits of a drafted tree's size and depth.
MOST_NODES, DEEPEST = 24, 8
_NOTHING = Survival(0.0, (), 0.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of an average round.

    Attributes:
        tokens: emitted tokens.
        target_s, draft_s, overhead_s: seconds in target passes, in the drafter while the target is
            idle, and outside both.
        error: relative standard error of ``tokens``, for another text of the same kind.

    """

    tokens: float
    target_s: float
    draft_s: float
    overhead_s: float
    error: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of the round: both models and the overhead outside them."""
        return self.target_s + self.draft_s + self.overhead_s

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class Forecast:
    """Estimates for plans on one machine, for one workload.

    Args:
        profile: what was measured.
        workload: what is to be decoded.

    """

    def __init__(self, profile: Profile, workload: Workload) -> None:
        self.profile, self.workload = profile, workload
        self._recordings = [DraftReplay(trace) for trace in nearest(profile.traces, workload)]
        self._measured: dict[tuple[str, int, int | None], dict[str, Drafts]] = {}
        self._estimates: dict[Plan, Estimate] = {}
        self._sizes: dict[tuple[Place, Place], Size] = {}
        self.chances = child_chances(self._recordings)
        self._trees = Trees(self.chances, MOST_NODES + 1, DEEPEST) if self.chances else None

    def predict(self, plan: Plan) -> Prediction:
        """Predict tokens per second, seconds to the first token, and bytes of a full context.

        Raises:
            PlanError: there is no formula for this drafter.
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
        """Estimate an average round, with the best fixed length if it is decided each round."""
        if plan not in self._estimates:
            self._estimates[plan] = self._estimate(plan)
        return self._estimates[plan]

    def _estimate(self, plan: Plan) -> Estimate:
        if plan.plain:
            return Estimate(1.0, self._target(plan)(1), 0.0, self.profile.overhead_s)
        info = drafting.info(plan.drafter)
        if info.estimated_by == "best":
            # It switches between its parts; only a replay shows how much that gains.
            parts = (replace(plan, drafter=part) for part in self._usable(info.parts, plan))
            return max((self.estimate(part) for part in parts), key=lambda found: found.rate)
        if info.estimated_by == "ranks":
            return self._tree(plan)
        if plan.schedule == OVERLAPPED and plan.draft_length is not None:
            # It stops waiting where more tokens do not pay, so it drafts this many or fewer.
            shorter = (replace(plan, draft_length=n) for n in range(1, plan.draft_length + 1))
            return max((self._fixed(one) for one in shorter), key=lambda found: found.rate)
        if plan.draft_length is not None:
            return self._fixed(plan)
        lengths = (replace(plan, draft_length=length) for length in info.lengths or LENGTHS)
        return max((self.estimate(one) for one in lengths), key=lambda found: found.rate)

    def drafts(
        self, drafter: str, length: int, *, branches: int | None = None
    ) -> dict[str, Drafts]:
        """Return the results of a drafter's rounds on the recorded texts, by source.

        Raises:
            PlanError: there is no formula for this drafter.

        """
        key = (drafter, length, branches)
        if key not in self._measured:
            if drafting.info(drafter).estimated_by in ("best", "ranks", "nothing"):
                raise PlanError(f"drafter {drafter!r}: there is no formula for its rounds")
            self._measured[key] = measure(self._recordings, drafter, length, branches=branches)
        return self._measured[key]

    def best_tree(self, plan: Plan) -> Size | None:
        """Return the best tree's size for these places; None without a draft model's choices."""
        if self._trees is None or plan.draft is None:
            return None
        key = (plan.target, plan.draft)
        if key not in self._sizes:
            target, draft = self._target(plan), self._draft(plan)
            self._sizes[key] = best_tree(
                self._trees, target, draft,
                overhead_s=self.profile.overhead_s, branches=self._branches(plan),
            )  # fmt: skip
        return self._sizes[key]

    def _chain(self, length: int) -> Drafts | None:
        """Return the draft model's recorded choices as chains of a length; None without any."""
        return self.drafts(ModelDrafter.name, length).get(ModelDrafter.name)

    def _branches(self, plan: Plan) -> int | None:
        """Return the most branches that both models compute; None is unlimited."""
        target = self.profile.at("target", plan.target).branches
        draft = None if plan.draft is None else self.profile.at("draft", plan.draft).branches
        return min((most for most in (target, draft) if most is not None), default=None)

    def _usable(self, parts: Sequence[str], plan: Plan) -> list[str]:
        branching = self.profile.at("target", plan.target).tree
        return [part for part in parts if branching or not drafting.info(part).needs_branches]

    # -- one round ------------------------------------------------------------------------------

    def _fixed(self, plan: Plan) -> Estimate:
        length = plan.draft_length or 0
        branches = self.profile.at("target", plan.target).branches
        found = self.drafts(plan.drafter, length, branches=branches)
        target, plain_share = self._target(plan), 1.0
        target_s = draft_s = error = 0.0
        tokens = 1.0
        for source, drafts in found.items():
            survival, share = drafts.survival, drafts.survival.drafts
            model_s = 0.0
            verify_s = target(drafts.nodes + 1)
            if drafting.info(source).needs_model:
                model_s = self._model_s(plan, survival, length) + self._lag_s(plan, found, survival)
                if plan.schedule == OVERLAPPED:
                    verify_s, model_s = self._overlap(plan, verify_s, model_s)
            target_s += share * verify_s
            draft_s += share * model_s
            tokens += survival.accepted(length)
            error += survival.error(length)
            plain_share -= share
        target_s += max(plain_share, 0.0) * target(1)
        return Estimate(tokens, target_s, draft_s, self.profile.overhead_s, error / tokens)

    def _model_s(self, plan: Plan, survival: Survival, length: int) -> float:
        """Return the time to draft a chain, in seconds."""
        draft, whole = self._draft(plan), survival.whole(length)
        # After a fully accepted chain, its last token is read with the next root.
        passes_s = (length - whole) * draft(1) + whole * draft(2)
        return passes_s + length * self.profile.draft_overhead_s

    def _lag_s(self, plan: Plan, found: dict[str, Drafts], own: Survival) -> float:
        """Return the time the draft model needs to read tokens that other drafters drafted."""
        others = [
            drafts.survival
            for source, drafts in found.items()
            if not drafting.info(source).needs_model
        ]
        if plan.schedule == OVERLAPPED or not others:
            return 0.0
        draft, length = self._draft(plan), plan.draft_length or 0
        written = sum(other.drafts + other.accepted(length) for other in others)
        behind = round(written / own.drafts)
        return draft(1 + behind) - draft(1)

    def _overlap(self, plan: Plan, verify_s: float, model_s: float) -> tuple[float, float]:
        """Return the time of the target, and of the draft beyond it, when both run at once.

        The draft continues from its own guess of the target's next token (PEARL, 2408.11850). If
        the guess holds, the next draft is ready when the target finishes, or soon after; otherwise
        the target waits for a new one.
        """
        length = plan.draft_length or 0
        met = plan.draft and self.profile.at_once(plan.target, plan.draft)
        if not met:
            raise PlanError(f"{plan.label}: {NOT_AT_ONCE}")
        at_once_s, ahead_s = verify_s * met.target_factor, model_s * met.draft_factor
        longer = self._chain(length + 1)
        holds = longer.survival.whole(length + 1) if longer else 0.0
        waits_s = holds * max(0.0, ahead_s - at_once_s) + (1 - holds) * model_s
        return at_once_s, waits_s

    def _tree(self, plan: Plan) -> Estimate:
        if self._trees is None:
            raise PlanError("a tree needs a draft model's choices: profile the pair again")
        nodes, depth = plan.draft_length, plan.depth
        if nodes is None:
            size = self.best_tree(plan)
            nodes, depth = (size.nodes, size.depth) if size else (1, 1)
        nodes = min(nodes, MOST_NODES)
        depth = min(depth or nodes, nodes, DEEPEST)
        branches = self._branches(plan)
        while branches is not None and self._trees.leaves(nodes + 1, depth) > branches:
            nodes -= 1
        draft = self._draft(plan)
        layers = self._trees.layers(nodes + 1, depth)
        draft_s = sum(draft(width) + self.profile.draft_overhead_s for width in layers[:-1])
        tokens = max(1.0, self._trees.expected(nodes + 1, depth))
        error = self._chain(depth)
        return Estimate(
            tokens,
            self._target(plan)(nodes + 1),
            draft_s,
            self.profile.overhead_s,
            (error.survival if error else _NOTHING).error(depth) / tokens,
        )

    # -- measured seconds -----------------------------------------------------------------------

    def _target(self, plan: Plan) -> Seconds:
        return self._seconds("target", plan.target)

    def _draft(self, plan: Plan) -> Seconds:
        if plan.draft is None:
            raise PlanError(f"{plan.label}: the drafter {plan.drafter} needs a place for its model")
        return self._seconds("draft", plan.draft)

    def _seconds(self, role: str, place: Place) -> Seconds:
        """Return the times of a model's passes, with the cache filled to the workload's middle."""
        measured, context = self.profile.at(role, place), self.workload.middle
        return lambda rows: measured.seconds(rows, context)

    def _context(self, plan: Plan) -> int:
        limit = self.profile.at("target", plan.target).max_context
        return self.workload.max_context or limit

    def _ttft_s(self, plan: Plan) -> float:
        """Return the time of both models' prefill and of the first round, in seconds."""
        read = self.workload.prompt_tokens - 1
        target_s = read * self.profile.at("target", plan.target).prefill_s
        draft_s = 0.0
        if plan.draft is not None:
            draft_s = read * self.profile.at("draft", plan.draft).prefill_s
        at_once = plan.schedule == OVERLAPPED
        prefill_s = max(target_s, draft_s) if at_once else target_s + draft_s
        return prefill_s + self.estimate(plan).seconds


def nearest(traces: Sequence[Trace], workload: Workload) -> list[Trace]:
    """Return texts recorded at the temperature nearest to the workload's, sorted by name."""
    texts = [trace for trace in traces if len(trace.tokens) > trace.prompt > 0]
    if not texts:
        return []
    apart = min(abs(trace.temperature - workload.temperature) for trace in texts)
    near = [t for t in texts if abs(t.temperature - workload.temperature) <= apart]
    return sorted(near, key=lambda trace: (trace.name, trace.tokens))
