"""Predicts a plan's speed on a workload by replaying it on the profile's texts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from edgedec.decoding.metrics import Metrics
from edgedec.errors import ProfileError
from edgedec.planning.estimate import nearest
from edgedec.planning.memory_fit import footprint
from edgedec.records.plan import OVERLAPPED, Plan, Prediction
from edgedec.records.profile import NOT_AT_ONCE, Contention, Profile
from edgedec.records.workload import Workload
from edgedec.replay.run import ReplaySetting, replay

# Shorter generations are predicted as if this long, so that there are rounds after the first.
_FEWEST_TOKENS = 32


def predict(profile: Profile, plan: Plan, workload: Workload) -> Prediction:
    """Replay a plan on the profile's texts of the nearest temperature.

    Raises:
        ProfileError: it has no texts, or the plan uses a place that was not measured, or two
            places that were not measured together.
        InputError: the plan drafts with a model, and the texts were recorded without one.

    """
    texts = nearest(profile.traces, workload)
    if not texts:
        raise ProfileError("the profile has no texts: profile the bundle again")
    setting = ReplaySetting(
        profile.at("target", plan.target),
        None if plan.draft is None else profile.at("draft", plan.draft),
        overhead_s=profile.overhead_s,
        draft_overhead_s=profile.draft_overhead_s,
        contention=contention(profile, plan),
        prompt_tokens=workload.prompt_tokens,
        sampled=texts[0].temperature > 0,
        rounds=profile.rounds,
    )
    replayed = replay(setting, plan, texts, max(workload.new_tokens, _FEWEST_TOKENS))
    context = workload.max_context or workload.tokens
    return Prediction(
        tokens_per_second=tokens_per_second(replayed),
        ttft_s=mean(text.ttft_s for text in replayed),
        peak_bytes=footprint(profile, plan, context).total,
        block_efficiency=sum(t.emitted for t in replayed) / sum(t.target_passes for t in replayed),
        texts=tuple(tokens_per_second([text]) for text in replayed),
    )


def tokens_per_second(texts: Sequence[Metrics]) -> float:
    """Return 1 / mean TPOT, as in the benches; a text of a single round counts that round.

    Args:
        texts: metrics of texts with at least one round each; prefill never counts.

    """
    seconds = [text.tpot_s for text in texts if text.tpot_s]
    if seconds:
        return 1 / mean(seconds)
    return sum(text.emitted for text in texts) / sum(text.rounds_s for text in texts)


def contention(profile: Profile, plan: Plan) -> Contention | None:
    """Return how much a plan's places slow each other (see ``Profile.at_once``), None if not.

    Raises:
        ProfileError: the plan overlaps, and the slowdown was not measured.

    """
    if plan.schedule != OVERLAPPED or plan.draft is None:
        return None
    met = profile.at_once(plan.target, plan.draft)
    if met is None:
        raise ProfileError(f"{plan.label}: {NOT_AT_ONCE}: profile the pair again")
    return met
