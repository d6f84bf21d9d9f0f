"""Measures how well plans are predicted, and whether the planner chooses the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import numpy as np

from benchmarks.bundles import GROWN, Suite
from edgedec._support.fields import to_json
from edgedec.compare.records import Recorder, Row
from edgedec.hardware.device import available_cores
from edgedec.loading.build import OpenOptions
from edgedec.loading.opening import placed
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.planning.choose import decide
from edgedec.planning.predict import predict
from edgedec.profiling import run
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.run import ProfileOptions
from edgedec.records.place import Place
from edgedec.records.plan import Candidate, Decision, Prediction
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload

_TOKENS, _CONTEXT = 64, 1024
_MOST_GROWN = 24
# The fastest of many noisy measurements is partly luck, so the first few are measured again.
_FINALISTS, _AGAIN = 4, 3
_ALL_CORES = Place("onnx", threads=available_cores())


@dataclass(frozen=True, slots=True)
class _Pair:
    name: str
    bundle: str | Path
    most: int


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A plan's measured speed, with plain decoding alternating, since machines drift.

    Attributes:
        rate: tokens per second as in predictions, 1 / mean TPOT.
        plain_rate: that of plain decoding on all cores, text by text in turn.

    """

    rate: float
    plain_rate: float

    @property
    def speedup(self) -> float:
        return self.rate / self.plain_rate


def planner(suite: Suite, recorder: Recorder) -> list[Row]:
    """Predict and measure every plan of the shipped pair and of its grown form."""
    pairs = [
        _Pair("shipped", "demo", 1000),
        _Pair("grown", suite.bundles.bundle("int4", target=GROWN), _MOST_GROWN),
    ]
    return [_examine(pair, suite, recorder) for pair in pairs]


def _examine(pair: _Pair, suite: Suite, recorder: Recorder) -> Row:
    texts = [(prompt.name, prompt.text) for prompt in heldout_prompts(suite.prompts)]
    profile = run.profile(pair.bundle, _options(texts))
    workload = _workload(pair, [text for _, text in texts])
    decision = decide(profile, workload, None, predict)
    usable = _some([one for one in decision.candidates if not one.refused], pair.most)
    found: dict[str, MeasuredPlan] = {}
    predicted: dict[str, Prediction] = {}
    with Pipeline.open(pair.bundle, plan="none", drafter="none") as plain:
        for candidate in usable:
            measured = _measure(pair, candidate, plain, [text for _, text in texts])
            found[candidate.plan.label] = measured
            # The planner replays only the plans with the best estimates; here all are replayed.
            replayed = predict(profile, candidate.plan, workload)
            predicted[candidate.plan.label] = replayed
            recorder.add(
                kind="plan",
                pair=pair.name,
                plan=candidate.plan.label,
                predicted=to_json(replayed),
                tokens_per_second=measured.rate,
                plain_tokens_per_second=measured.plain_rate,
                error=replayed.tokens_per_second / measured.rate - 1,
            )
        row = _summary(predicted, found)
        row |= _finals(pair, decision, found, plain, [text for _, text in texts])
    recorder.add(kind="summary", pair=pair.name, reasons=decision.reasons, **row)
    recorder.add(kind="profile", pair=pair.name, **_costs(profile))
    return {"pair": pair.name, **row}


def _some(usable: Sequence[Candidate], most: int) -> list[Candidate]:
    """Return a selection, half of it the best and half evenly spaced, since each takes seconds."""
    if len(usable) <= most:
        return list(usable)
    best, others = usable[: most // 2], usable[most // 2 :]
    step = len(others) / (most - len(best))
    plain = [one for one in others if one.plan.plain]
    spread = [others[int(number * step)] for number in range(most - len(best))]
    return list(dict.fromkeys([*best, *spread, *plain]))


def _options(texts: Sequence[tuple[str, str]]) -> ProfileOptions:
    """Return options that calibrate on the texts to be decoded.

    This bench examines the cost of plans on a given text. The spread between texts is measured
    elsewhere; with few texts it dominates the error.
    """
    prompts = tuple(CalibrationPrompt(name, text) for name, text in texts)
    return ProfileOptions(prompts=prompts, refresh=True)


def _workload(pair: _Pair, texts: Sequence[str]) -> Workload:
    with Pipeline.open(pair.bundle, plan="none", drafter="none") as pipeline:
        lengths = [len(pipeline.tokenizer.encode(text)) for text in texts]
    return Workload(round(mean(lengths)), _TOKENS, 0.0, _CONTEXT)


def _measure(
    pair: _Pair, candidate: Candidate, plain: Pipeline, texts: Sequence[str]
) -> MeasuredPlan:
    opening = placed(OpenOptions(plan="none"), candidate.plan, _CONTEXT)
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    with Pipeline.open(pair.bundle, opening) as pipeline:
        pipeline.generate(texts[-1], GenerateOptions(16, ignore_eos=True))  # warms caches
        seconds = [
            [one.generate(text, options).metrics.tpot_s for one in (plain, pipeline)]
            for text in texts
        ]
    plain_s, own_s = (mean(column) for column in zip(*seconds, strict=True))
    return MeasuredPlan(1 / own_s, 1 / plain_s)


def _finals(
    pair: _Pair,
    decision: Decision,
    found: dict[str, MeasuredPlan],
    plain: Pipeline,
    texts: Sequence[str],
) -> Row:
    """Measure the fastest plans and the chosen one again, in turn, to rate the choice."""
    chosen = decision.chosen.plan.label
    first = sorted(found, key=lambda label: found[label].speedup, reverse=True)[:_FINALISTS]
    labels = dict.fromkeys([chosen, *first])
    finalists = [one for one in decision.candidates if one.plan.label in labels]
    speedups: dict[str, list[float]] = {label: [] for label in labels}
    for _ in range(_AGAIN):
        for one in finalists:
            speedups[one.plan.label].append(_measure(pair, one, plain, texts).speedup)
    medians = {label: median(own) for label, own in speedups.items()}
    best = max(medians, key=lambda label: medians[label])
    return {
        "chosen": chosen,
        "best": best,
        "chosen_speedup": medians[chosen],
        "best_speedup": medians[best],
        "chosen_of_best": medians[chosen] / medians[best],
    }


def _summary(replayed: dict[str, Prediction], found: dict[str, MeasuredPlan]) -> Row:
    """Return errors of the rates, and of the speed-ups over plain decoding on all cores."""
    predicted = {label: one.tokens_per_second for label, one in replayed.items()}
    errors = [abs(predicted[label] / one.rate - 1) for label, one in found.items()]
    everywhere = next(label for label in found if label == f"plain on {_ALL_CORES.label}")
    relative = [
        abs((predicted[label] / predicted[everywhere]) / one.speedup - 1)
        for label, one in found.items()
    ]
    return {
        "plans": len(found),
        "median_error": median(errors),
        "p90_error": float(np.quantile(errors, 0.9)),
        "median_error_to_plain": median(relative),
        "p90_error_to_plain": float(np.quantile(relative, 0.9)),
    }


def _costs(profile: Profile) -> Row:
    """Return the profile without its texts."""
    return {
        "measured": [to_json(one) for one in profile.measured],
        "contention": [to_json(one) for one in profile.contention],
        "overhead_s": profile.overhead_s,
        "draft_overhead_s": profile.draft_overhead_s,
    }
