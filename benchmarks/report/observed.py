"""Adds further records to a comparison's: pass times, predictions, one generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from edgedec.compare.interleaved import Comparison
from edgedec.compare.records import Recorder
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import AcceptanceRule, Verdict
from edgedec.decoding.policy import calibrate
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft
from edgedec.errors import EdgedecError
from edgedec.hardware.resident import resident_bytes
from edgedec.loading.build import OpenOptions
from edgedec.loading.sources import Models
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt
from edgedec.planning import remembered
from edgedec.records.plan import SEQUENTIAL, Candidate
from edgedec.runtimes import registry
from edgedec.text.tokenizer import Tokenizer

# Measuring the passes of one format takes about this long.
_CURVE_S = 2.0
_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
# The two sides of the generation that is shown.
PLAIN, SHOWN = "none", "auto"


def record_more(
    bundle: str | Path,
    common: OpenOptions,
    prompts: Sequence[tuple[str, Prompt]],
    options: GenerateOptions,
    found: Comparison,
    recorder: Recorder,
) -> None:
    """Record costs of passes, the planner's predictions, and one generation by rounds.

    The generation is that of the prompt with the median ratio.
    """
    for curve in _curves(bundle, common):
        recorder.add(kind="curve", **curve)
    for prediction in _predictions(bundle, common.draft):
        recorder.add(kind="prediction", **prediction)
    name = _typical(found)
    prompt = dict(prompts)[name]
    sides = {}
    for draft in (PLAIN, SHOWN):
        batch_invariant = False if draft == PLAIN else common.load.batch_invariant
        opened = common.changed(drafter=draft, batch_invariant=batch_invariant)
        with Pipeline.open(bundle, opened) as pipeline:
            pipeline.generate(prompt, replace(options, max_new_tokens=8))  # warms caches
            sides[draft] = watch(pipeline, prompt, options)
            text = prompt if isinstance(prompt, str) else pipeline.tokenizer.decode(prompt)
    recorder.add(kind="generation", prompt=name, text=text, sides=sides)


def _curves(bundle: str | Path, common: OpenOptions) -> Iterator[dict[str, Any]]:
    """Yield the target's pass times by rows, in each format that can run here."""
    for source in Models.find(bundle, None).sources["target"]:
        runtime = registry.of_format(source.format).name
        if common.format not in ("auto", source.format) or not registry.installed(runtime):
            continue
        # Plain decoding at its fastest, whose passes have an unpadded single row.
        opened = common.changed(drafter=PLAIN, draft=None, draft_load=None)
        opened = opened.changed(format=source.format, batch_invariant=False)
        try:
            with Pipeline.open(bundle, opened) as pipeline:
                curve = calibrate(pipeline.engine.target, _WIDTHS, _CURVE_S)
        except EdgedecError as error:
            yield {"format": source.format, "runtime": runtime, "left_out": str(error)}
            continue
        yield {
            "format": source.format,
            "runtime": runtime,
            "widths": curve.widths,
            "seconds": curve.seconds,
            "steady": curve.steady,
        }


def _predictions(bundle: str | Path, draft: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the predictions and the choice of these models' last `edgedec plan`, if any."""
    decision = remembered.recall(Models.find(bundle, draft))
    if decision is None:
        return
    chosen = decision.chosen
    plain = [one for one in decision.candidates if one.plan.plain and not one.refused]
    if not plain:
        return
    base = max(one.tokens_per_second for one in plain if one.measured or not chosen.measured)
    yield {"chosen": True, **_predicted(chosen, base), "interval": _interval(chosen)}
    seen = set()
    for one in decision.candidates:  # the best first
        plan = one.plan
        simple = plan.schedule == SEQUENTIAL and plan.draft_length is None
        if simple and not one.refused and not plan.plain and plan.drafter not in seen:
            seen.add(plan.drafter)
            yield {"chosen": False, **_predicted(one, base)}


def _interval(one: Candidate) -> list[float]:
    """Return the lowest and highest tokens per second on the texts that the plan was made on."""
    rate, trial = one.tokens_per_second, one.measured
    return (
        [rate * end(trial.texts) / trial.speedup for end in (min, max)] if trial else [rate, rate]
    )


def _predicted(one: Candidate, base: float) -> Mapping[str, Any]:
    plan, rate = one.plan, one.tokens_per_second
    names = [plan.drafter]
    # The comparison calls it auto.
    if plan.drafter in {drafting.default(with_model=known) for known in (True, False)}:
        names.append(SHOWN)
    return {
        "plan": plan.label,
        "drafters": names,
        "format": plan.target.format,
        "draft_length": plan.draft_length,
        "tokens_per_second": rate,
        "speedup": rate / base,
    }


def _typical(found: Comparison) -> str:
    """Return the prompt whose ratio for the shown drafter is the median."""
    ratios = found.ratios(SHOWN)
    order = sorted(range(len(ratios)), key=ratios.__getitem__)
    return found.prompts[order[len(order) // 2]]


# -- one generation by rounds: the draft and the tokens that were accepted ----------------------


class Watched:
    """An acceptance rule that also records each round's draft and verdict.

    Attributes:
        rounds: seconds since the start, memory of the process in bytes, draft and verdict of each.

    """

    def __init__(self, rule: AcceptanceRule) -> None:
        self._rule = rule
        self.name, self.lossless = rule.name, rule.lossless
        self.seeds_text, self.coupled, self.want = rule.seeds_text, rule.coupled, rule.want
        self.pads = rule.pads
        self._began = perf_counter()
        self.rounds: list[tuple[float, int, Draft, Verdict]] = []

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        verdict = self._rule.accept(draft, rows, streams)
        self.rounds.append((perf_counter() - self._began, resident_bytes(), draft, verdict))
        return verdict


def watch(pipeline: Pipeline, prompt: Prompt, options: GenerateOptions) -> dict[str, Any]:
    """Decode a prompt and return its rounds, as JSON.

    A round has the time at which the target had scored it, the memory of the process then, the
    drafter, and the texts of accepted tokens, of the target's own token, and of rejected tokens.
    """
    engine, honest = pipeline.engine, pipeline.engine.rule
    watched = Watched(honest)
    engine.rule = watched
    try:
        result = pipeline.generate(prompt, options)
    finally:
        pipeline.engine.rule = honest
    tokens = pipeline.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    rounds, at = [], 0
    for seconds, held, draft, verdict in watched.rounds:
        # The last round may have been cut at the end of the text.
        kept = result.events[at : at + verdict.accepted + 1]
        accepted = [event.text for event in kept[: verdict.accepted]]
        own = [event.text for event in kept[verdict.accepted :]]
        before = [*tokens, *result.token_ids[: at + len(accepted)]]
        rejected = [
            draft.tree.tokens[node]
            for node in range(1, len(draft.tree))
            if node not in verdict.path[: len(accepted) + 1]
        ]
        rounds.append(
            {
                "seconds": seconds,
                "memory_bytes": held,
                "source": draft.source,
                "accepted": accepted,
                "own": "".join(own),
                "rejected": _texts(pipeline.tokenizer, before, rejected),
                "emitted": len(kept),
            }
        )
        at += len(kept)
    return {"tokens": len(result.events), "rounds": rounds}


def _texts(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> list[str]:
    """Return the text that each token completes; empty for a token inside a character."""
    stream = tokenizer.stream(before)
    return [stream.push(token) for token in tokens]
