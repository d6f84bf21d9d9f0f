"""What the project promises, measured: one function a promise, raw records in JSONL.

Run by ``make bench``. Needs a clone (the checkpoints are not in the wheel) and the extra
``export``. Ratios are taken within one run; nothing here fails because a machine is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.bench import busy, estimate, formats, identity, never_slower, pair
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
        count: damaged inputs that the section ``fuzz`` reads.

    """

    shop: Workshop
    out: Path
    prompts: int
    threads: int | None = None
    count: int = 100_000

    def run(self, name: str) -> list[Row]:
        """One section; its rows are what a table shows, its records are in ``out``."""
        with recording(self.out, name) as recorder:
            return SECTIONS[name](self, recorder)

    def code(self) -> list[tuple[str, Prompt]]:
        """Held-out function heads."""
        return [(prompt.name, prompt.text) for prompt in heldout_prompts(self.prompts)]

    def options(self, **chosen: Any) -> OpenOptions:
        """Options with this suite's threads."""
        return OpenOptions(threads=self.threads, plan="none", **chosen)

    def plain(self) -> OpenOptions:
        """The baseline: plain decoding without padding, which is its fastest."""
        return self.options(draft="none", row_invariant=False)


def engine(suite: Suite, recorder: Recorder) -> list[Row]:
    """Cost of a round outside the models' passes."""
    from edgedec.bench import engine_cost

    return engine_cost.run(recorder)


def distribution(suite: Suite, recorder: Recorder) -> list[Row]:
    """Chi-squared of whole texts over an enumerable toy model, with rules that are flagged."""
    from edgedec.bench import distribution as texts

    return texts.run(recorder)


def papers(suite: Suite, recorder: Recorder) -> list[Row]:
    """Headline figures of papers, held against the engine and the scheduler in virtual time."""
    from edgedec.bench.papers import section as reproduced

    return reproduced.run(recorder)


def shipped(suite: Suite, recorder: Recorder) -> list[Row]:
    """The pair that ships, as it is: every drafter, greedy."""
    return _speed(suite, recorder, suite.shop.bundle("int4"), SamplingParams(), _ALL)


def grown(suite: Suite, recorder: Recorder) -> list[Row]:
    """The target grown to half a billion, the draft as it is, greedy."""
    names = ("auto", "model", "lookup", "recycle", "hybrid padded")
    return _speed(suite, recorder, suite.shop.bundle("int4", target=GROWN), SamplingParams(), names)


def baselines(suite: Suite, recorder: Recorder) -> list[Row]:
    """Plain decoding of the grown target by weight format: which one is there to beat."""
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
    """The same, sampled at temperature 0.8 with a seed."""
    sampling = SamplingParams(temperature=0.8, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "model", "hybrid padded"))


def grown_both(suite: Suite, recorder: Recorder) -> list[Row]:
    """The target grown, and the draft grown to a tenth of it, greedy."""
    bundle = suite.shop.bundle("int4", target=GROWN, draft=GROWN_DRAFT)
    return _speed(suite, recorder, bundle, SamplingParams(), ("auto", "model"))


def hopeless(suite: Suite, recorder: Recorder) -> list[Row]:
    """Text no draft can predict: sampled at temperature 1.6 after random tokens."""
    prompts: list[tuple[str, Prompt]] = [
        (f"random {i}", tokens) for i, tokens in enumerate(random_prompts(suite.prompts, 4096))
    ]
    sampling = SamplingParams(temperature=1.6, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "hybrid padded"), prompts, repeats=3)


def whole(suite: Suite, recorder: Recorder) -> list[Row]:
    """Whole commands: export of the grown target, memory of decoding it, the first token."""
    from edgedec.bench import commands

    return [
        *commands.export(suite.shop, GROWN, recorder),
        *commands.memory(suite.shop.bundle("int4", target=GROWN), recorder),
        *commands.first_token("demo", recorder),
    ]


def fuzz(suite: Suite, recorder: Recorder) -> list[Row]:
    """Damaged inputs of every kind that comes from elsewhere: read, or refused in one line."""
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
    """Each candidate against plain decoding of the same bundle, interleaved."""
    entrants = {PLAIN: suite.plain()}
    for name in names:
        entrants[name] = suite.options(**_OPENED.get(name, {"draft": name}))
    options = GenerateOptions(128, sampling, ignore_eos=True)
    found = race(bundle, entrants, prompts or suite.code(), options, recorder, repeats=repeats)
    return [{"candidate": name, **found.summary(name)} for name in found.tpot_s]
