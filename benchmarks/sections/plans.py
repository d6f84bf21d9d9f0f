"""Measures how much of the best plan's speed the planner's choice reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from time import perf_counter

from benchmarks.bundles import GROWN, Suite
from edgedec._support.fields import to_json
from edgedec.compare.drafters import PLAIN
from edgedec.compare.records import Recorder, Row
from edgedec.loading.build import OpenOptions
from edgedec.loading.opening import placed
from edgedec.loading.sources import Models
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.planning import decisions
from edgedec.profiling import trial
from edgedec.profiling.run import ProfileOptions
from edgedec.profiling.trial import TrialJob
from edgedec.records.plan import Candidate, Decision, Trial
from edgedec.records.workload import Workload

_TOKENS, _CONTEXT = 64, 1024
_MOST_GROWN = 24
# All plans run; then the chosen one and the best few are opened and measured again, seven times.
_GO_ON, _FINALISTS, _REPEATS, _AGAIN = 8, 4, 3, 7


@dataclass(frozen=True, slots=True)
class _Pair:
    name: str
    bundle: str | Path
    most: int


def planner(suite: Suite, recorder: Recorder) -> list[Row]:
    """Plan for the shipped pair and for its grown form, then measure every plan."""
    bundles = suite.bundles
    pairs = [_Pair("shipped" if bundles.grows else "given", bundles.shipped(), 1000)]
    if bundles.grows:
        pairs.append(_Pair("grown", bundles.bundle("int4", target=GROWN), _MOST_GROWN))
    return [_examine(pair, suite, recorder) for pair in pairs]


def _examine(pair: _Pair, suite: Suite, recorder: Recorder) -> Row:
    texts = suite.texts()
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
        fewest=_REPEATS, most=_REPEATS, finalists=_GO_ON,
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
    prompts = tuple(text for _, text in texts)
    return ProfileOptions(prompts=prompts, refresh=True)


def _workload(pair: _Pair, texts: Sequence[str]) -> Workload:
    with Pipeline.open(pair.bundle, plan="none", drafter="none") as pipeline:
        lengths = [len(pipeline.tokenizer.encode(text)) for text in texts]
    return Workload(round(mean(lengths)), _TOKENS, 0.0, _CONTEXT)


def _finals(
    pair: _Pair, decision: Decision, every: Sequence[Candidate], texts: Sequence[str]
) -> Row:
    """Open the fastest plans and the chosen one together, in turn on each text, to rate the choice.

    Openings differ by some percent, so that the best of several plans that are equally fast would
    look faster than it is if each were opened alone.
    """
    chosen = decision.chosen.plan.label
    speeds = {one.plan.label: one.measured.speedup for one in every if one.measured}
    best = sorted(speeds, key=lambda label: -speeds[label])
    labels = dict.fromkeys([chosen, *best[:_FINALISTS]])
    openings = {
        one.plan.label: placed(OpenOptions(plan="none"), one.plan, _CONTEXT)
        for one in every
        if one.plan.label in labels
    }
    openings[PLAIN] = OpenOptions(plan="none", drafter="none")
    tpots: dict[str, list[float]] = {label: [] for label in openings}
    for opened in range(_AGAIN):
        for label, tpot_s in _in_turns(pair, openings, texts, opened).items():
            tpots[label].append(tpot_s)
    speedups = {
        label: median(plain_s / own_s for plain_s, own_s in zip(tpots[PLAIN], own, strict=True))
        for label, own in tpots.items()
        if label != PLAIN
    }
    first = max(speedups, key=lambda label: speedups[label])
    return {
        "chosen": chosen,
        "best": first,
        "chosen_speedup": speedups[chosen],
        "best_speedup": speedups[first],
        "chosen_of_best": speedups[chosen] / speedups[first],
        "finals": {label: [1 / tpot_s for tpot_s in own] for label, own in tpots.items()},
    }


def _in_turns(
    pair: _Pair, openings: Mapping[str, OpenOptions], texts: Sequence[str], opened: int
) -> dict[str, float]:
    """Return each opening's mean TPOT over the texts, all opened at once."""
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    found: dict[str, list[float]] = {label: [] for label in openings}
    with ExitStack() as stack:
        pipelines = {
            label: stack.enter_context(Pipeline.open(pair.bundle, opening))
            for label, opening in openings.items()
        }
        for pipeline in pipelines.values():
            pipeline.generate(texts[-1], GenerateOptions(16, ignore_eos=True))  # warms caches
        for number, text in enumerate(texts):
            order = list(pipelines.items())
            for label, pipeline in order if (number + opened) % 2 else order[::-1]:
                found[label].append(pipeline.generate(text, options).metrics.tpot_s)
    return {label: mean(own) for label, own in found.items()}
