"""Decides how many of a target's weights stay in memory if they do not all fit.

Weights get the memory that the rest of a plan, including the draft, leaves. The time of passes with
that many weights in memory is then measured, as at any other place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from edgedec._support.amounts import size
from edgedec.decoding import drafting
from edgedec.loading.sources import Source
from edgedec.memory.grant import spare
from edgedec.planning.memory_fit import MemoryFit, footprint
from edgedec.profiling.places import format_streams, streams_weights
from edgedec.records.place import CPU, Place
from edgedec.records.plan import Decision, Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import Workload

# Measured: Python with numpy, ONNX Runtime and the tokenizers, before a model is opened.
LEAST_PROCESS = 50_000_000
# Memory of streamed sessions in addition to weights, with room for a drafter with a model.
_SESSIONS = 64_000_000
# Granularity of memory amounts: smaller differences share a measurement.
_STEP = 4_000_000

Measure = Callable[[Place, int], Measured]


def possible(sources: Mapping[str, Sequence[Source]]) -> bool:
    """Return whether this machine can stream the target's weights."""
    return any(format_streams(source.format) for source in sources["target"])


def to_begin_with(sources: Mapping[str, Sequence[Source]], memory: int | None) -> int | None:
    """Return how many bytes of weights to keep while a target larger than memory is measured.

    None if it can be loaded whole, or cannot be streamed.
    """
    if memory is None or not possible(sources):
        return None
    target, *drafts = (
        min(sum(file.stat().st_size for file in one.files.values()) for one in models)
        for models in (sources["target"], *([sources["draft"]] if sources.get("draft") else []))
    )
    # A model that is loaded whole also needs a cache and working memory: 64 MB for half a billion
    # parameters, a quarter of the weights for the shipped target.
    if LEAST_PROCESS + target + min(_SESSIONS, target // 4) <= memory:
        return None
    # A model takes about the memory of its files. Only half of the rest is used, since this process
    # also holds its measuring tools, and both models while it records their texts.
    left = (memory - LEAST_PROCESS - _SESSIONS - sum(drafts)) // 2
    return max(_STEP, left // _STEP * _STEP)


def with_streamed(
    profile: Profile, memory: int | None, workload: Workload, measure: Measure
) -> tuple[Profile, bool]:
    """Return the profile, with a place that streams weights if no other place fits in memory.

    Args:
        memory: most bytes that a plan may hold; None sets no limit.
        measure: measures the target at a place, with contexts of up to this many tokens.

    Returns:
        The profile, and whether a place was measured now.

    """
    fit = MemoryFit(profile, workload, memory)
    targets = profile.of("target")
    whole = [one for one in targets if one.place.weight_memory is None]
    if memory is None or any(fit.least(Plan(one.place)) <= memory for one in whole):
        return _only(profile, None), False
    able = [one for one in targets if streams_weights(one.place)]
    if not able:
        return profile, False
    base = min(able, key=lambda one: one.seconds(1, workload.prompt_tokens))
    weights = memory - spare(memory) - _other_bytes(profile, base, fit.needed) - _SESSIONS
    if weights < _STEP:
        return profile, False
    place = dataclasses.replace(base.place, weight_memory=weights // _STEP * _STEP)
    profile = _only(profile, place)
    if any(one.role == "target" and one.place == place for one in profile.measured):
        return profile, False
    added = measure(place, fit.needed)
    return dataclasses.replace(profile, measured=(*profile.measured, added)), True


def note(decision: Decision, weights: int) -> str:
    """Return a sentence for the user if the chosen plan streams its weights; else empty."""
    held = decision.chosen.plan.target.weight_memory
    if held is None:
        return ""
    rate, trial = decision.chosen.tokens_per_second, decision.chosen.measured
    expected = f"{rate:.1f} tokens/s"
    if trial is not None:
        slow, fast = (rate * end(trial.texts) / trial.speedup for end in (min, max))
        expected += f" ({slow:.1f} to {fast:.1f}, depending on the text)"
    return (
        f"the target's weights ({size(weights)}) do not fit: at most {size(held)} of them are in"
        f" memory at once, the rest is read from the disk in every pass; expect {expected}"
    )


def _other_bytes(profile: Profile, target: Measured, context: int) -> int:
    """Return the memory of a plan without the target's weights, including a draft, in bytes."""
    drafts = [one for one in profile.of("draft") if one.rolls_back and one.place.device == CPU]
    plan = Plan(target.place)
    if drafts and target.rolls_back:
        names = [n for n in drafting.planned() if drafting.info(n).needs_model]
        draft = min(drafts, key=lambda one: one.rss_bytes)
        plan = Plan(target.place, draft.place, names[0], None)
    taken = footprint(profile, plan, context)
    return taken.total - taken.target


def _only(profile: Profile, place: Place | None) -> Profile:
    """Return the profile without places that stream weights in another amount of memory."""
    kept = tuple(one for one in profile.measured if one.place.weight_memory is None
                 or one.place == place)  # fmt: skip
    return dataclasses.replace(profile, measured=kept)
