"""Measures what the project promises: one function per promise, raw records in JSONL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.bench import busy, estimate, formats, identity, never_slower, pair, rounding
from edgedec.bench.bundle import PLAIN, race
from edgedec.bench.compare import compare
from edgedec.bench.exact import exact, lone_rows
from edgedec.bench.grown import Workshop
from edgedec.bench.other_texts import other_texts
from edgedec.bench.overlap import overlap, overlap_sampled
from edgedec.bench.plans import planner
from edgedec.bench.records import Recorder, recording
from edgedec.bench.trust import simulation_trust
from edgedec.bench.workloads import heldout_prompts, random_prompts
from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

Row = dict[str, Any]
Section = Callable[["Suite", Recorder], list[Row]]

GROWN = "target-0.5b"
GROWN_DRAFT = "draft-50m"


@dataclass(frozen=True, slots=True)
class Suite:
    """Settings all sections share.

    Attributes:
        shop: makes the bundles.
        out: folder of the raw records.
        prompts: prompts of each section.
        threads: of each model; None is all cores.
        count: damaged inputs of the section ``fuzz``.

    """

    shop: Workshop
    out: Path
    prompts: int
    threads: int | None = None
    count: int = 100_000

    def run(self, name: str) -> list[Row]:
        """Run one section; its rows are for a table, its records are in ``out``."""
        with recording(self.out, name) as recorder:
            return SECTIONS[name](self, recorder)

    def code(self) -> list[tuple[str, Prompt]]:
        """Return held-out function heads."""
        return [(prompt.name, prompt.text) for prompt in heldout_prompts(self.prompts)]

    def options(self, **chosen: Any) -> OpenOptions:
        """Return options with this suite's threads."""
        return OpenOptions(threads=self.threads, plan="none", **chosen)

    def plain(self) -> OpenOptions:
        """Return the baseline's options: plain decoding without padding, its fastest form."""
        return self.options(draft="none", row_invariant=False)


def engine(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the cost of a round outside the models' passes."""
    from edgedec.bench import engine_cost

    return engine_cost.run(recorder)


def distribution(suite: Suite, recorder: Recorder) -> list[Row]:
    """Test a toy model's whole texts by chi-squared, with broken rules to be flagged."""
    from edgedec.bench import distribution as texts

    return texts.run(recorder)


def papers(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare papers' headline figures with the engine and the scheduler in virtual time."""
    from edgedec.bench.papers import section as reproduced

    return reproduced.run(recorder)


def shipped(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the shipped pair as it is: every drafter, greedy."""
    return _speed(suite, recorder, suite.shop.bundle("int4"), SamplingParams(), _ALL)


def grown(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the target grown to half a billion parameters with the shipped draft, greedy."""
    names = ("auto", "model", "lookup", "recycle", "hybrid padded")
    return _speed(suite, recorder, suite.shop.bundle("int4", target=GROWN), SamplingParams(), names)


def baselines(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure plain decoding of the grown target by weight format, to find the baseline."""
    options = GenerateOptions(64, ignore_eos=True)
    with ExitStack() as stack:
        pipelines = {
            f"plain {weights}": stack.enter_context(
                Pipeline.open(suite.shop.bundle(weights, target=GROWN), suite.plain())
            )
            for weights in ("int4", "int8")
        }
        found = compare(pipelines, suite.code(), options, recorder)
    return [{"candidate": name, **found.summary(name)} for name in found.tpot_s]


def grown_sampled(suite: Suite, recorder: Recorder) -> list[Row]:
    """Repeat ``grown`` at temperature 0.8 with a seed."""
    sampling = SamplingParams(temperature=0.8, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "model", "hybrid padded"))


def grown_both(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the target grown, and the draft grown to a tenth of it, greedy."""
    bundle = suite.shop.bundle("int4", target=GROWN, draft=GROWN_DRAFT)
    return _speed(suite, recorder, bundle, SamplingParams(), ("auto", "model"))


def hopeless(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure text no draft can predict: sampled at temperature 1.6 after random tokens."""
    prompts: list[tuple[str, Prompt]] = [
        (f"random {i}", tokens) for i, tokens in enumerate(random_prompts(suite.prompts, 4096))
    ]
    sampling = SamplingParams(temperature=1.6, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "hybrid padded"), prompts, repeats=3)


def whole(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure whole commands: export of the grown target, memory of decoding, first token."""
    from edgedec.bench import commands

    return [
        commands.export(suite.shop, suite.shop.checkpoint("target", GROWN), recorder).row,
        *commands.memory(suite.shop.bundle("int4", target=GROWN), recorder),
        *commands.first_token("demo", recorder),
    ]


def fuzz(suite: Suite, recorder: Recorder) -> list[Row]:
    """Read damaged inputs of every untrusted kind, which are read or refused in one line."""
    from edgedec.bench.fuzzing import run

    return run.run(recorder, suite.count, suite.out)


_SECTIONS = (
    engine,
    distribution,
    shipped,
    baselines,
    grown,
    grown_sampled,
    grown_both,
    hopeless,
    whole,
    fuzz,
    papers,
    overlap,
    overlap_sampled,
    planner,
    other_texts,
    simulation_trust,
    *identity.SECTIONS,
    *pair.SECTIONS,
    *never_slower.SECTIONS,
    exact,
    lone_rows,
    *formats.SECTIONS,
    *busy.SECTIONS,
    *estimate.SECTIONS,
    *rounding.SECTIONS,
)
SECTIONS: dict[str, Section] = {section.__name__: section for section in _SECTIONS}

_ALL = ("auto", "model", "tree", "lookup", "recycle", "hybrid padded", "model 3")
_OPENED: dict[str, dict[str, Any]] = {
    "hybrid padded": {"draft": "hybrid", "row_invariant": True},
    "model 3": {"draft": "model", "draft_length": 3},
}


def _speed(
    suite: Suite,
    recorder: Recorder,
    bundle: Path,
    sampling: SamplingParams,
    names: Sequence[str],
    prompts: list[tuple[str, Prompt]] | None = None,
    repeats: int = 1,
) -> list[Row]:
    """Race each candidate against plain decoding of the same bundle, interleaved."""
    entrants = {PLAIN: suite.plain()}
    for name in names:
        entrants[name] = suite.options(**_OPENED.get(name, {"draft": name}))
    options = GenerateOptions(128, sampling, ignore_eos=True)
    found = race(bundle, entrants, prompts or suite.code(), options, recorder, repeats=repeats)
    return [{"candidate": name, **found.summary(name)} for name in found.tpot_s]
