"""Measures what ``auto`` loses on unpredictable text, and misses on predictable text.

Losses are of processor time, summed over threads, with both ways decoded in turn in one process, so
that other load hardly matters. A request's whole time counts, including both models' reading of the
prompt.

Plain decoding uses the same bundle at its fastest, without padding: where ``auto`` pads passes for
exact text, that is part of its loss.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.bundles import GROWN, Suite
from benchmarks.workloads import random_prompts
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import facts
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Prompt

AUTO = "auto"
_DRAFTERS = ("lookup", "model", "recycle", "hybrid", "tree")
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_FINALISTS = 4
_AGAIN = "held-out code, greedy, the quickest again"
_TOKENS = 128
_REPEATS = 4  # even, so that each way is opened first as often as the others
_RESAMPLES = 10_000

# Written for this file; the demo pair knows Python and some English.
_ELSEWHERE = (
    "Der Fluss war über Nacht gestiegen, und am Morgen standen die Wiesen unter Wasser. Die alte",
    "Quand le boulanger ouvrit sa porte, la rue était encore vide ; seul un chat gris dormait sur",
    "Кондуктор посмотрел на билет, потом на пассажира, и снег за окном был",
    "Kun juna viimein lähti asemalta, lapset painoivat nenänsä ikkunaan ja laskivat ohi",
    "El relojero tenía la costumbre de hablar con sus relojes. A los más viejos les contaba",
    "Az öreg halász minden este ugyanarra a kőre ült, és addig nézte a tavat, amíg a túlsó",
    "夕方になると、駅前の小さな古本屋に明かりがともった。店主は何も言わずに茶を入れ、棚の奥から",
    "Il guardiano del faro scriveva ogni notte una sola riga nel suo quaderno: il vento, le",
)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts and generation options."""

    name: str
    prompts: Sequence[tuple[str, Prompt]]
    sampling: SamplingParams
    accept: str | None = None


def never_slower(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure ``auto`` against plain decoding on unpredictable text, by processor time."""
    rows = []
    noise = suite.bundles.with_noise_head().bundle("int4", head=True)
    # With a head ``auto`` drafts with it, and this one is wrong on every text.
    for pair, bundle in [*_pairs(suite), ("shipped, head of noise", noise)]:
        for work in unpredictable(suite.prompts):
            extra = {} if work.accept is None else {"accept": work.accept}
            ways = {PLAIN: suite.plain(), AUTO: suite.options(**extra)}
            rows.append({"pair": pair, **_race(bundle, ways, work, recorder, pair)})
    return rows


def best_fixed(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure ``auto`` against every fixed setting on predictable text."""
    # The quickest of 40 is mostly luck, so the first few are measured again, in turn with auto.
    work = PromptSet("held-out code, greedy", suite.code(), SamplingParams())
    rows = []
    for pair, bundle in _pairs(suite):
        once = _search(bundle, suite, work, recorder, pair)
        first = sorted(once, key=lambda setting: once[setting])[:_FINALISTS]
        ways = {AUTO: suite.options()}
        for drafter, length in first:
            ways[f"{drafter} {length}"] = suite.options(drafter=drafter, draft_length=length)
        spent = in_turn(bundle, ways, replace(work, name=_AGAIN), recorder, pair).spent
        seconds = {name: sum(each) for name, each in spent.items()}
        fixed = [name for name in seconds if name != AUTO]
        best = min(fixed, key=lambda name: seconds[name])
        of_best, prompts = seconds[best] / seconds[AUTO], len(work.prompts)
        row: Row = {"best_fixed": best, "of_best": of_best, "prompts": prompts}
        recorder.add(kind="summary", pair=pair, seconds=seconds, **row)
        rows.append({"pair": pair, **row})
    return rows


def unpredictable(count: int) -> list[PromptSet]:
    """Return texts that a draft cannot predict, with ``count`` prompts each."""
    texts: list[tuple[str, Prompt]] = [
        (f"random {i}", tokens) for i, tokens in enumerate(random_prompts(count, 4096))
    ]
    elsewhere: list[tuple[str, Prompt]] = [
        (f"language {i}", _ELSEWHERE[i % len(_ELSEWHERE)]) for i in range(count)
    ]
    hot = SamplingParams(temperature=1.6, seed=0)
    return [
        PromptSet("random tokens, greedy", texts, SamplingParams()),
        PromptSet("another language, greedy", elsewhere, SamplingParams()),
        PromptSet("random tokens, temperature 1.6", texts, hot),
        PromptSet("another language, temperature 1.6", elsewhere, hot),
        # Draft and target draw independently: the draft is hardly ever right, and passes are not
        # padded by default.
        PromptSet("another language, temperature 1.6, uncoupled", elsewhere, hot, "match"),
        PromptSet("another language, temperature 1.6, speculative", elsewhere, hot, "speculative"),
    ]


def loss(plain_s: Sequence[float], other_s: Sequence[float]) -> tuple[float, float]:
    """Return the relative time lost against plain, and the upper end of its one-sided 95% interval.

    Bootstrap over prompts: sums of pairs that are drawn with replacement, from a fixed seed.
    """
    plain, other = np.asarray(plain_s), np.asarray(other_s)
    picks = np.random.default_rng(0).integers(0, len(plain), (_RESAMPLES, len(plain)))
    ratios = other[picks].sum(axis=1) / plain[picks].sum(axis=1)
    return float(other.sum() / plain.sum()) - 1, float(np.quantile(ratios, 0.95)) - 1


def _pairs(suite: Suite) -> list[tuple[str, Path]]:
    bundles = suite.bundles
    sizes = bundles.sizes(shipped=None, grown=GROWN)
    return [(name, bundles.bundle("int4", target=preset)) for name, preset in sizes.items()]


def _race(
    bundle: Path, ways: Mapping[str, OpenOptions], work: PromptSet, recorder: Recorder, pair: str
) -> Row:
    """Measure what ``auto`` loses against plain decoding on one workload."""
    spent = in_turn(bundle, ways, work, recorder, pair).spent
    lost, upper = loss(spent[PLAIN], spent[AUTO])
    row: Row = {
        "workload": work.name,
        "loss": lost,
        "upper_95": upper,
        "prompts": len(work.prompts),
    }
    recorder.add(kind="summary", pair=pair, **row)
    return row


@dataclass(frozen=True, slots=True)
class Decoded:
    """One workload decoded in several ways, by name, with an entry per prompt.

    Attributes:
        spent: processor time in seconds, of all repeats together.
        texts: tokens that were written.

    """

    spent: dict[str, list[float]]
    texts: dict[str, list[Sequence[int]]]


def in_turn(
    bundle: Path,
    ways: Mapping[str, OpenOptions],
    work: PromptSet,
    recorder: Recorder,
    pair: str,
    repeats: int = _REPEATS,
) -> Decoded:
    """Decode a workload each way in turn, prompt by prompt, in one process.

    Each repeat opens all anew, since two openings of one model may differ in speed by some percent,
    and every other repeat in reverse, since what is opened first is mostly slower.
    """
    found = Decoded({name: [0.0] * len(work.prompts) for name in ways}, {name: [] for name in ways})
    options = GenerateOptions(_TOKENS, work.sampling, ignore_eos=True)
    for turn in range(repeats):
        order = list(ways)[:: -1 if turn % 2 else 1]
        with opened(bundle, {name: ways[name] for name in order}) as pipelines:
            for pipeline in pipelines.values():
                pipeline.generate(work.prompts[0][1], options)
            for index, (label, prompt) in enumerate(work.prompts):
                for name in list(ways)[:: 1 if (index + turn) % 2 else -1]:
                    cpu_s, done = _timed(pipelines[name], prompt, options)
                    found.spent[name][index] += cpu_s
                    if not turn:
                        found.texts[name].append(done.token_ids)
                    recorder.add(
                        kind="run", pair=pair, workload=work.name, candidate=name, prompt=label,
                        cpu_s=cpu_s, **facts(done),
                    )  # fmt: skip
    return found


def _search(
    bundle: Path, suite: Suite, work: PromptSet, recorder: Recorder, pair: str
) -> dict[tuple[str, int], float]:
    """Measure the seconds of decoding with every drafter at every length, once."""
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    spent: dict[tuple[str, int], float] = {}
    ways = {name: suite.options(drafter=name) for name in _DRAFTERS}
    with opened(bundle, ways) as pipelines:
        for pipeline in pipelines.values():
            pipeline.generate(work.prompts[0][1], options)
        for label, prompt in work.prompts:
            for name, pipeline in pipelines.items():
                for length in LENGTHS:
                    pipeline.engine.policy = Fixed(length)
                    cpu_s, done = _timed(pipeline, prompt, options)
                    spent[name, length] = spent.get((name, length), 0.0) + cpu_s
                    recorder.add(
                        kind="run", pair=pair, workload=work.name, candidate=f"{name} {length}",
                        prompt=label, cpu_s=cpu_s, **facts(done),
                    )  # fmt: skip
    return spent


def _timed(
    pipeline: Pipeline, prompt: Prompt, options: GenerateOptions
) -> tuple[float, Generation]:
    pipeline.forget()  # else a setting would profit from the prompt that the one before it read
    begin = time.process_time()
    done = pipeline.generate(prompt, options)
    return time.process_time() - begin, done


SECTIONS = (never_slower, best_fixed)
