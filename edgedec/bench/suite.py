"""Lists the sections of ``make bench``: one function per measured claim, raw records in JSONL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgedec.bench.bundle import PLAIN, race
from edgedec.bench.distribution import distribution
from edgedec.bench.fuzzing.attacks import untrusted
from edgedec.bench.papers.claims import papers
from edgedec.bench.records import Recorder, Row, recording
from edgedec.bench.sections import commands, fidelity, formats, identity, never_slower, pair
from edgedec.bench.sections.busy import busy
from edgedec.bench.sections.conversations import conversations
from edgedec.bench.sections.draft_context import draft_context
from edgedec.bench.sections.engine_cost import engine
from edgedec.bench.sections.estimate import estimate
from edgedec.bench.sections.exact import exact, lone_rows
from edgedec.bench.sections.first_token import first_token
from edgedec.bench.sections.fixed_shapes import fixed_shapes
from edgedec.bench.sections.grammar import grammar
from edgedec.bench.sections.kernels import kernels
from edgedec.bench.sections.kv_types import kv_types
from edgedec.bench.sections.limits import limits
from edgedec.bench.sections.loading import loading
from edgedec.bench.sections.memory import memory_held
from edgedec.bench.sections.other_texts import other_texts
from edgedec.bench.sections.overlap import overlap, overlap_sampled
from edgedec.bench.sections.plans import planner
from edgedec.bench.sections.prefill import prefill
from edgedec.bench.sections.serve import serve
from edgedec.bench.sections.streaming import streaming, streaming_gguf
from edgedec.bench.sections.streaming_peer import streaming_peer
from edgedec.bench.sections.trust import simulation_trust
from edgedec.bench.workloads import random_prompts
from edgedec.bench.workshop import GROWN, Suite
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import GenerateOptions, Prompt

Section = Callable[[Suite, Recorder], list[Row]]


def run(suite: Suite, name: str) -> list[Row]:
    """Run one section; its rows are for a table, its records are in ``suite.out``."""
    with recording(suite.out, name) as recorder:
        return SECTIONS[name](suite, recorder)


def shipped(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the shipped pair as it is: every drafter, greedy."""
    return _speed(suite, recorder, suite.shop.bundle("int4"), SamplingParams(), _ALL)


def grown(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the target grown to half a billion parameters with the shipped draft, greedy."""
    names = ("auto", "model", "lookup", "recycle", "auto unpadded")
    return _speed(suite, recorder, suite.shop.bundle("int4", target=GROWN), SamplingParams(), names)


def grown_sampled(suite: Suite, recorder: Recorder) -> list[Row]:
    """Repeat ``grown`` at temperature 0.8 with a seed."""
    sampling = SamplingParams(temperature=0.8, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "model", "auto unpadded"))


def hopeless(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure text no draft can predict: sampled at temperature 1.6 after random tokens."""
    prompts: list[tuple[str, Prompt]] = [
        (f"random {i}", tokens) for i, tokens in enumerate(random_prompts(suite.prompts, 4096))
    ]
    sampling = SamplingParams(temperature=1.6, seed=0)
    bundle = suite.shop.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "auto unpadded"), prompts, repeats=3)


def fuzz(suite: Suite, recorder: Recorder) -> list[Row]:
    """Read damaged inputs of every untrusted kind; each must load or be refused in one line."""
    from edgedec.bench.fuzzing import run

    return run.run(recorder, suite.count, suite.out, only=suite.inputs)


_SECTIONS = (
    engine,
    distribution,
    shipped,
    grown,
    grown_sampled,
    hopeless,
    *commands.SECTIONS,
    fuzz,
    untrusted,
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
    busy,
    *formats.SECTIONS,
    *fidelity.SECTIONS,
    estimate,
    conversations,
    draft_context,
    kv_types,
    memory_held,
    loading,
    limits,
    prefill,
    first_token,
    streaming,
    streaming_gguf,
    streaming_peer,
    grammar,
    serve,
    fixed_shapes,
    kernels,
)
SECTIONS: dict[str, Section] = {section.__name__: section for section in _SECTIONS}

_ALL = ("auto", "model", "tree", "lookup", "recycle", "auto padded", "model 3")
_OPENED: dict[str, dict[str, Any]] = {
    "auto padded": {"row_invariant": True},
    "auto unpadded": {"row_invariant": False},
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
    return found.rows()
