"""Compares configurations on the same prompts, interleaved in one process.

Machines are shared and their speed drifts, so only ratios within one run are meaningful: every
prompt is decoded by every candidate in turn, and the candidate that goes first rotates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, NamedTuple, Protocol, TypeVar

from edgedec.compare.records import Recorder, Row
from edgedec.errors import InputError
from edgedec.hardware.energy import EnergyMeter
from edgedec.pipeline import GenerateOptions, Generation

_LOSS = 0.98

# Texts decoded so far, and total texts.
OnProgress = Callable[[int, int], None]
# What a candidate decodes: a prompt, or a question with turns.
Input = TypeVar("Input")
InputOf = TypeVar("InputOf", contravariant=True)


class Progress:
    """Counts texts for a listener."""

    def __init__(self, listener: OnProgress | None) -> None:
        self._listener = listener
        self._total = 0
        self._done = 0

    def on(self, done: int, total: int) -> None:
        """Report another counter's state instead of counting."""
        if self._listener is not None:
            self._listener(done, total)

    def expect(self, texts: int) -> None:
        self._total += texts

    def step(self) -> None:
        """Count one text as done."""
        self._done += 1
        if self._listener is not None:
            self._listener(self._done, self._total)


class Candidate(Protocol[InputOf]):
    """Something that is compared."""

    def generate(self, prompt: InputOf, options: GenerateOptions | None = None) -> Generation:
        """Decode to the end."""
        ...


class Used(NamedTuple):
    """Resources that one text took, prefill included.

    Attributes:
        processor_s: processor time of all threads of this process, in seconds.
        joules: the whole machine's energy; None if it does not report it.

    """

    processor_s: float
    joules: float | None


@dataclass(slots=True)
class Comparison:
    """Seconds per token by candidate and prompt.

    Attributes:
        baseline: name of the candidate others are compared with.
        tpot_s: candidate -> seconds per token after the first round, one per prompt.
        identical: candidate -> number of texts equal to the baseline's, token for token.
        prompts: their names, in the same order.
        used: candidate -> what one token took of each text, including prefill.

    """

    baseline: str
    tpot_s: dict[str, list[float]] = field(default_factory=dict)
    identical: dict[str, int] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    used: dict[str, list[Used]] = field(default_factory=dict)

    def add(self, prompt: str, runs: Mapping[str, Sequence[Generation]]) -> None:
        """Add one prompt's runs by candidate; ignored if one of them has no TPOT."""
        seconds = {name: median(g.metrics.tpot_s for g in some) for name, some in runs.items()}
        if not all(seconds.values()):
            return
        self.prompts.append(prompt)
        expected = runs[self.baseline][0].token_ids
        for name, generations in runs.items():
            self.tpot_s[name].append(seconds[name])
            self.identical[name] += all(g.token_ids == expected for g in generations)

    def speedup(self, name: str) -> float:
        """Return baseline seconds over candidate seconds, summed over prompts."""
        return sum(self.tpot_s[self.baseline]) / sum(self.tpot_s[name])

    def ratios(self, name: str) -> list[float]:
        """Return the same ratio for each prompt."""
        pairs = zip(self.tpot_s[self.baseline], self.tpot_s[name], strict=True)
        return [plain / other for plain, other in pairs]

    def used_per_token(self, name: str) -> dict[str, float]:
        """Return what a candidate's tokens took on average; no joules if any text's are unknown."""
        texts = self.used.get(name, [])
        if not texts:
            return {}
        found = {"processor_s_per_token": mean(one.processor_s for one in texts)}
        joules = [one.joules for one in texts if one.joules is not None]
        return found | ({"joules_per_token": mean(joules)} if len(joules) == len(texts) else {})

    def add_use(self, name: str, used: Used, tokens: int) -> None:
        """Add what one text of a candidate took."""
        joules = None if used.joules is None else used.joules / tokens
        self.used.setdefault(name, []).append(Used(used.processor_s / tokens, joules))

    def losses(self, name: str) -> list[str]:
        """Return prompts that took more than 2% longer than with the baseline."""
        ratios = zip(self.prompts, self.ratios(name), strict=True)
        return [prompt for prompt, ratio in ratios if ratio < _LOSS]

    def summary(self, name: str) -> dict[str, float | int]:
        """Return a candidate's figures for a table."""
        ratios = self.ratios(name)
        return {
            "tokens_per_second": len(self.tpot_s[name]) / sum(self.tpot_s[name]),
            "speedup": self.speedup(name),
            "median_ratio": median(ratios),
            "worst_ratio": min(ratios),
            "below_0.98": len(self.losses(name)),
            "identical": self.identical[name],
            "prompts": len(ratios),
            **self.used_per_token(name),
        }

    def rows(self) -> list[Row]:
        """Return a table of all candidates."""
        return [{"candidate": name, **self.summary(name)} for name in self.tpot_s]

    def record(self, recorder: Recorder) -> None:
        """Add a record for each candidate's summary."""
        for name in self.tpot_s:
            recorder.add(
                kind="summary",
                candidate=name,
                baseline=self.baseline,
                losses=self.losses(name),
                **self.summary(name),
            )


def compare(
    candidates: Mapping[str, Candidate[Input]],
    prompts: Sequence[tuple[str, Input]],
    options: GenerateOptions | Sequence[GenerateOptions],
    recorder: Recorder,
    *,
    repeats: int = 1,
    warm_ups: int = 1,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Decode every prompt with every candidate; the first one is the baseline.

    Args:
        candidates: by name; opened by the caller, who also closes them.
        prompts: (name, prompt) pairs.
        options: for all prompts, or one for each.
        recorder: gets one record per run.
        repeats: runs of each; the median TPOT counts.
        warm_ups: texts of each candidate, of the first prompt, before any that counts.
        on_progress: called after each text, including warm-up.

    A prompt for which some candidate decodes the whole text in one round has no TPOT there: it is
    recorded but not compared.

    Raises:
        InputError: this applies to all prompts.

    """
    names = list(candidates)
    result = Comparison(names[0], {name: [] for name in names}, dict.fromkeys(names, 0))
    each = [options] * len(prompts) if isinstance(options, GenerateOptions) else options
    progress = Progress(on_progress)
    progress.expect(len(names) * (warm_ups + len(prompts) * repeats))
    for pipeline in [*candidates.values()] * warm_ups:  # caches, calibration, lazy allocations
        pipeline.generate(prompts[0][1], each[0])
        progress.step()
    for index, ((label, prompt), chosen) in enumerate(zip(prompts, each, strict=True)):
        runs: dict[str, list[Generation]] = {name: [] for name in names}
        turns = range(index, index + repeats)
        for name, done, used in _in_turn(candidates, prompt, chosen, turns):
            runs[name].append(done)
            result.add_use(name, used, done.metrics.emitted)
            recorder.add(kind="run", candidate=name, prompt=label, **used._asdict(), **facts(done))
            progress.step()
        result.add(label, runs)
    if not result.tpot_s[names[0]]:
        raise InputError("every text took a single round, which is not timed: make texts longer")
    result.record(recorder)
    return result


def _in_turn(
    candidates: Mapping[str, Candidate[Input]],
    prompt: Input,
    options: GenerateOptions,
    turns: range,
) -> Iterator[tuple[str, Generation, Used]]:
    """Decode a prompt with every candidate in each turn; the turn determines their order.

    Yields candidates, their texts, and what each text took.
    """
    names, meter = list(candidates), EnergyMeter()
    for turn in turns:
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            meter.used()
            begin = time.process_time()
            done = candidates[name].generate(prompt, options)
            yield name, done, Used(time.process_time() - begin, meter.used())


def facts(generation: Generation) -> dict[str, Any]:
    """Return the figures of one run, as recorded."""
    metrics = generation.metrics
    return {
        "tokens": metrics.emitted,
        "ttft_s": metrics.ttft_s,
        "reused_tokens": metrics.reused_tokens,
        "tpot_s": metrics.tpot_s,
        "total_s": metrics.ttft_s + metrics.decode_s,
        "speedup_estimate": metrics.speedup_estimate,
        "target_passes": metrics.target_passes,
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
        "acceptance_rate": metrics.acceptance_rate,
        "block_efficiency": metrics.block_efficiency,
        "draft_s": metrics.draft_s,
        "target_s": metrics.target_s,
        "engine_s": metrics.engine_s,
        "reuse_hits": metrics.reuse_hits,
        "ahead_s": metrics.ahead_s,
        "overlapped_s": metrics.overlapped_s,
        "accepted_lengths": dict(sorted(metrics.accepted_lengths.items())),
        "sources": dict(metrics.sources),
        "finish_reason": generation.finish_reason,
        "seed": generation.seed,
        "plan": generation.plan,
    }
