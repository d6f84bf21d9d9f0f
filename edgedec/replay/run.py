"""Runs the real engine, drafters and policies on a recorded text, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgedec.decoding import drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError, StateError
from edgedec.loading.engine import build_engine, planned_policy
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import Contention, Measured
from edgedec.records.trace import Trace
from edgedec.replay.costs import PassCost
from edgedec.replay.sessions import DRAFT, TARGET, Surroundings, TraceModel, TraceRows, TraceSession
from edgedec.replay.sharing import Shared
from edgedec.replay.virtual_clock import VirtualClock

# Session capacity beyond the text: the widest draft of a round.
_MOST_DRAFTED = 128
# Tokens in the cache when a pipeline measures its passes.
_CALIBRATION = 32
# Extra overhead of a round whose policy decides each round, as a share of a plain round's: Python
# against Python, measured on x86-64.
_DECIDING = 1.2
# Likewise, the exchange of an overlapped round with the draft's thread.
_SCHEDULING = 1.0
# Likewise, the noise of one position, per token of the vocabulary.
_NOISE = 3e-4
# Likewise, a row of an overlapped draft, as a share of a drafted token's overhead.
_AHEAD_ROW = 1.2


@dataclass(frozen=True, slots=True)
class ReplaySetting:
    """The sessions, clock and costs that a plan is replayed with.

    Attributes:
        target: the target at the plan's place.
        draft: likewise; None without a draft model.
        overhead_s: of a round, outside passes.
        draft_overhead_s: likewise, additional for each pass of the draft.
        contention: slowdown of the two places when both compute at once; None is no slowdown.
        prompt_tokens: of the workload's prompt; None is the trace's number.
        rounds: measured seconds of a round outside its passes, by ``Plan.kind``; a missing kind
            takes shares of ``overhead_s``.
        sampled: tokens are drawn, which needs full rows of logits and noise for the whole
            vocabulary.

    """

    target: Measured
    draft: Measured | None = None
    overhead_s: float = 0.0
    draft_overhead_s: float = 0.0
    contention: Contention | None = None
    prompt_tokens: int | None = None
    sampled: bool = False
    rounds: Mapping[str, float] = field(default_factory=dict)


def replay(
    setting: ReplaySetting, plan: Plan, traces: Sequence[Trace], new_tokens: int
) -> list[Metrics]:
    """Decode the traces' texts one after the other, as one pipeline would.

    Args:
        setting: the machine.
        plan: drafter, draft length and schedule; its places are the setting's.
        traces: of one temperature.
        new_tokens: most new tokens of a text; its trace may end earlier.

    Returns the figures of each text, in virtual seconds.

    Raises:
        InputError: no trace, or the plan needs a draft model and there is none.

    """
    if not traces:
        raise InputError("nothing to replay: expected a trace or more")
    with VirtualClock() as clock:
        stage = _Stage(setting, plan, clock, traces)
        try:
            return [stage.run(trace, new_tokens) for trace in traces]
        finally:
            stage.engine.drafter.close()


def decode(
    engine: Engine,
    trace: Trace,
    vocab_size: int,
    new_tokens: int,
    metrics: Metrics | None = None,
) -> tuple[list[int], Metrics]:
    """Decode greedily after a trace's prompt, at most to its end; return tokens and metrics."""
    prompt = list(trace.tokens[: trace.prompt])
    sampler = Sampler(SamplingParams(), vocab_size, prompt)
    stop = StopRule(max_new_tokens=min(new_tokens, len(trace.tokens) - trace.prompt))
    metrics = Metrics() if metrics is None else metrics
    rounds = engine.run(Request(prompt, sampler, stop), metrics)
    return [emission.token for emissions in rounds for emission in emissions], metrics


class _Stage:
    """One plan, assembled as a pipeline would be."""

    def __init__(
        self, setting: ReplaySetting, plan: Plan, clock: VirtualClock, traces: Sequence[Trace]
    ) -> None:
        self._clock, self._setting = clock, setting
        self._shared = Shared(clock, _factors(setting, plan))
        self._capacity = max(len(trace.tokens) for trace in traces) + _MOST_DRAFTED
        self._models: list[TraceModel] = []
        target = self._model(TARGET, setting.target, traces[0], _overheads(setting, plan))
        draft: TraceSession | None = None
        if drafting.info(plan.drafter).needs_model:
            if setting.draft is None:
                raise InputError(f"drafter {plan.drafter!r} needs a draft model: none was measured")
            draft = self._model(DRAFT, setting.draft, traces[0], _draft_overheads(setting, plan))
        parts = DrafterParts(
            setting.target.vocab_size,
            draft,
            setting.target.branches,
            draft_branches=setting.draft.branches if setting.draft else None,
        )
        policy = self._policy(plan)
        self.engine = build_engine(plan, target, parts, clock, policy=policy, on_failure=_raise)

    def run(self, trace: Trace, new_tokens: int) -> Metrics:
        """Decode one text."""
        for model in self._models:
            model.rows = TraceRows(trace, model.role, model.rows.vocab_size)
            model.cost = self._cost(model.cost.measured, trace)
        tokens, metrics = decode(self.engine, trace, self._setting.target.vocab_size, new_tokens)
        if tuple(tokens) != trace.tokens[trace.prompt :][: len(tokens)]:
            raise StateError(f"trace {trace.name!r}: the replay wrote another text than the trace")
        return metrics

    def _model(
        self, role: str, measured: Measured, trace: Trace, overheads: tuple[float, ...]
    ) -> TraceSession:
        # In a trace, a draft of another vocabulary has the target's token ids.
        vocab_size = self._setting.target.vocab_size
        rows = TraceRows(trace, role, vocab_size)
        around = Surroundings(self._clock, self._shared, *overheads)
        model = TraceModel(rows, role, self._cost(measured, trace), around)
        self._models.append(model)
        return model.open(min(self._capacity, measured.max_context))

    def _cost(self, measured: Measured, trace: Trace) -> PassCost:
        setting = self._setting
        return PassCost(measured, trace.prompt, setting.prompt_tokens, logits=setting.sampled)

    def _policy(self, plan: Plan) -> DraftPolicy:
        target, *draft = self._models
        draft_s = draft[0].cost.seconds(1, _CALIBRATION) if draft else None
        return planned_policy(plan, target.cost.curve(_CALIBRATION), draft_s)


def _raise(error: BaseException) -> None:
    raise error


def _overheads(setting: ReplaySetting, plan: Plan) -> tuple[float, float, float]:
    """Return seconds outside passes: per round, per round with a draft, per committed token."""
    scheduling = _SCHEDULING if plan.schedule == OVERLAPPED else 0.0
    noise = _NOISE * setting.target.vocab_size if setting.sampled else 0.0
    noise_s = setting.overhead_s * noise
    if plan.kind in setting.rounds:
        return setting.rounds[plan.kind] + setting.overhead_s * scheduling, 0.0, noise_s
    deciding = _DECIDING if plan.draft_length is None else 0.0
    drafting_s = setting.overhead_s * drafting.info(plan.drafter).round_share
    return setting.overhead_s * (1 + deciding + scheduling), drafting_s, noise_s


def _draft_overheads(setting: ReplaySetting, plan: Plan) -> tuple[float, float]:
    """Return seconds outside the model: of a draft pass, and for each of its rows."""
    each = _AHEAD_ROW if plan.schedule == OVERLAPPED else 0.0
    return setting.draft_overhead_s, each * setting.draft_overhead_s


def _factors(setting: ReplaySetting, plan: Plan) -> dict[str, float]:
    """Return, by role, how much slower passes are when both models compute at once."""
    if plan.schedule != OVERLAPPED or setting.contention is None:
        return {}
    return {
        TARGET: setting.contention.target_factor,
        DRAFT: setting.contention.draft_factor,
    }
