"""Measures how much of the best plan's speed the planner's choice reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from time import perf_counter

from benchmarks.bundles import GROWN, Suite
from edgedec._support.fields import to_json
from edgedec.compare.records import Recorder, Row
from edgedec.loading.build import OpenOptions
from edgedec.loading.opening import placed
from edgedec.loading.sources import Models
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.planning import decisions
from edgedec.profiling import trial
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.run import ProfileOptions
from edgedec.profiling.trial import TrialJob
from edgedec.records.plan import Candidate, Decision, Trial
from edgedec.records.workload import Workload

_TOKENS, _CONTEXT = 64, 1024
_MOST_GROWN = 24
# All plans run; then the chosen one and the best few are opened and measured again, in turns.
_GO_ON, _FINALISTS, _AGAIN = 8, 4, 3


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
    """Plan for the shipped pair and for its grown form, then measure every plan."""
    pairs = [
        _Pair("shipped", "demo", 1000),
        _Pair("grown", suite.bundles.bundle("int4", target=GROWN), _MOST_GROWN),
    ]
    return [_examine(pair, suite, recorder) for pair in pairs]


def _examine(pair: _Pair, suite: Suite, recorder: Recorder) -> Row:
    texts = [(prompt.name, prompt.text) for prompt in heldout_prompts(suite.prompts)]
    models, options = Models.find(pair.bundle), _options(texts)
    workload = _workload(pair, [text for _, text in texts])
    began = perf_counter()
    decision = decisions.plan(models, workload, options=options)
    planned_s = perf_counter() - began
    every = _run(pair, models, decision, options.texts(models))
    for one in every:
        recorder.add(
            kind="plan", pair=pair.name, plan=one.plan.label,
            predicted=to_json(one.prediction), measured=to_json(one.measured),
        )  # fmt: skip
    row: Row = {"plans": len(every), "planned_s": planned_s}
    row |= _finals(pair, decision, every, [text for _, text in texts])
    recorder.add(kind="summary", pair=pair.name, reasons=decision.reasons, **row)
    return {"pair": pair.name, **row}


def _run(
    pair: _Pair, models: Models, decision: Decision, prompts: Sequence[Sequence[int]]
) -> list[Candidate]:
    """Run every plan, up to the pair's limit, and the best ones twice more; return them."""
    usable = [one for one in decision.candidates if not one.refused]
    plain = next(one for one in usable if one.plan.plain)
    some = list(dict.fromkeys([plain, decision.chosen, *_some(usable, pair.most)]))
    plans = tuple(one.plan for one in some)
    job = TrialJob(
        models.target, models.draft, plans, tuple(map(tuple, prompts)), _TOKENS,
        fewest=_AGAIN, most=_AGAIN, finalists=_GO_ON,
    )  # fmt: skip
    found: dict[int, Trial] = trial.results(plans, trial.run(job).turns)
    return [replace(some[number], measured=one) for number, one in found.items()]


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
    pair: _Pair, decision: Decision, every: Sequence[Candidate], texts: Sequence[str]
) -> Row:
    """Measure the fastest plans and the chosen one again, in turn, to rate the choice."""
    chosen = decision.chosen.plan.label
    speeds = {one.plan.label: one.measured.speedup for one in every if one.measured}
    best = sorted(speeds, key=lambda label: -speeds[label])
    labels = dict.fromkeys([chosen, *best[:_FINALISTS]])
    finalists = [one for one in every if one.plan.label in labels]
    speedups: dict[str, list[float]] = {label: [] for label in labels}
    with Pipeline.open(pair.bundle, plan="none", draft="none") as plain:
        for _ in range(_AGAIN):
            for one in finalists:
                speedups[one.plan.label].append(_measure(pair, one, plain, texts).speedup)
    medians = {label: median(own) for label, own in speedups.items()}
    first = max(medians, key=lambda label: medians[label])
    return {
        "chosen": chosen,
        "best": first,
        "chosen_speedup": medians[chosen],
        "best_speedup": medians[first],
        "chosen_of_best": medians[chosen] / medians[first],
    }
