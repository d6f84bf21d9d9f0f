"""Lists the sections of ``make bench``: one function per measured claim, raw records in JSONL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bundles import GROWN, Suite
from benchmarks.certificate.distribution import tested
from benchmarks.records import resuming_alone
from benchmarks.sections import (
    commands,
    fidelity,
    formats,
    four_bits,
    identity,
    never_slower,
    pair,
    published,
    same_texts,
)
from benchmarks.sections.android_core import android_core
from benchmarks.sections.busy import busy
from benchmarks.sections.conversations import conversations
from benchmarks.sections.draft_context import draft_context
from benchmarks.sections.draft_vocabulary import draft_vocabulary
from benchmarks.sections.drafts import drafts
from benchmarks.sections.engine_cost import engine
from benchmarks.sections.estimate import estimate
from benchmarks.sections.exact import exact, lone_rows
from benchmarks.sections.first_token import first_token
from benchmarks.sections.grammar import grammar
from benchmarks.sections.huge_pages import huge_pages
from benchmarks.sections.hybrid import hybrid
from benchmarks.sections.kernels import kernels
from benchmarks.sections.kv_types import kv_types
from benchmarks.sections.limits import limits
from benchmarks.sections.loading import loading
from benchmarks.sections.memory import memory_held
from benchmarks.sections.overlap import overlap, overlap_sampled
from benchmarks.sections.plans import planner
from benchmarks.sections.prefill import prefill
from benchmarks.sections.published_chats import published_chats
from benchmarks.sections.ray import ray
from benchmarks.sections.recurring import recurring
from benchmarks.sections.rows import rows_by_width
from benchmarks.sections.rpc import rpc
from benchmarks.sections.serve import serve
from benchmarks.sections.serve_attacked import serve_attacked
from benchmarks.sections.static_shapes import static_shapes
from benchmarks.sections.streaming import streaming, streaming_gguf
from benchmarks.sections.streaming_peer import streaming_peer
from benchmarks.sections.untrusted import untrusted
from benchmarks.workloads import random_prompts
from edgedec.compare.drafters import PLAIN, compared
from edgedec.compare.interleaved import Progress
from edgedec.compare.records import Recorder, Row, recording
from edgedec.decoding import drafting
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import GenerateOptions, Prompt

Section = Callable[[Suite, Recorder], list[Row]]


def run(suite: Suite, name: str) -> list[Row]:
    """Run one section; its rows are for a table, its records are in ``suite.out``."""
    if name in RESUMING:
        resumed = RESUMING[name]
        with resuming_alone(suite.out, name, resumed.settings(suite)) as (recorder, earlier):
            return resumed.run(suite, recorder, earlier)
    with recording(suite.out, name) as recorder:
        return SECTIONS[name](suite, recorder)


def shipped(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the shipped pair as it is: every drafter, greedy."""
    return _speed(suite, recorder, suite.bundles.bundle("int4"), SamplingParams(), _ALL)


def grown(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the target grown to half a billion parameters with the shipped draft, greedy."""
    names = ("auto", "model", "lookup", "recycle", "auto unpadded")
    return _speed(
        suite, recorder, suite.bundles.bundle("int4", target=GROWN), SamplingParams(), names
    )


def grown_sampled(suite: Suite, recorder: Recorder) -> list[Row]:
    """Repeat ``grown`` at temperature 0.8 with a seed."""
    sampling = SamplingParams(temperature=0.8, seed=0)
    bundle = suite.bundles.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "model", "auto unpadded"))


def unpredictable(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure text no draft can predict: sampled at temperature 1.6 after random tokens."""
    prompts: list[tuple[str, Prompt]] = [
        (f"random {i}", tokens) for i, tokens in enumerate(random_prompts(suite.prompts, 4096))
    ]
    sampling = SamplingParams(temperature=1.6, seed=0)
    bundle = suite.bundles.bundle("int4", target=GROWN)
    return _speed(suite, recorder, bundle, sampling, ("auto", "auto unpadded"), prompts, repeats=3)


def distribution(suite: Suite, recorder: Recorder) -> list[Row]:
    """Test an enumerable model's whole texts by chi-squared, with broken rules to be flagged."""
    return recorder.table(tested(Progress(None)), "chi_squared")


_SECTIONS = (
    engine,
    distribution,
    shipped,
    grown,
    grown_sampled,
    unpredictable,
    *commands.SECTIONS,
    untrusted,
    overlap,
    overlap_sampled,
    planner,
    *identity.SECTIONS,
    *same_texts.SECTIONS,
    *pair.SECTIONS,
    *never_slower.SECTIONS,
    exact,
    lone_rows,
    rows_by_width,
    busy,
    *formats.SECTIONS,
    *fidelity.SECTIONS,
    *four_bits.SECTIONS,
    estimate,
    conversations,
    draft_context,
    draft_vocabulary,
    drafts,
    recurring,
    kv_types,
    memory_held,
    loading,
    huge_pages,
    hybrid,
    limits,
    prefill,
    first_token,
    streaming,
    streaming_gguf,
    streaming_peer,
    grammar,
    rpc,
    ray,
    serve,
    serve_attacked,
    static_shapes,
    kernels,
    android_core,
    published.published,
    published_chats,
)
SECTIONS: dict[str, Section] = {section.__name__: section for section in _SECTIONS}
# Sections that go on where they were stopped.
RESUMING = {published.published.__name__: published.RESUMED}
# Sections in which a given target has no part, and what they measure.
FIXED = {
    "engine": "models that answer at once",
    "distribution": "an enumerable model",
    "untrusted": "what altered copies of the bundle that ships do",
    "vocabularies": "the demo pair's draft of another vocabulary",
    "draft_context": "the demo pair's draft of another vocabulary",
    "draft_vocabulary": "targets and drafts grown for it",
    "serve_attacked": "whether a server of the pair that ships keeps its limits",
    "ray": "what a cluster costs the pair that ships",
    "android_core": "the phone's decoder with the pair that ships",
}

_ALL = ("auto", "model", "tree", "lookup", "recycle", "auto padded", "model 3")
_OPENED: dict[str, dict[str, Any]] = {
    "auto padded": {"batch_invariant": True},
    "auto unpadded": {"batch_invariant": False},
    "model 3": {"drafter": "model", "draft_length": 3},
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
    """Compare each candidate with plain decoding of the same bundle, interleaved."""
    entrants = {PLAIN: suite.plain()}
    for name in names:
        opened = _OPENED.get(name, {"draft": name})
        drafter = opened.get("drafter") or opened.get("draft", drafting.AUTO)
        alone = drafter == drafting.AUTO or not drafting.info(drafter).needs_model
        if alone or suite.bundles.drafts:
            entrants[name] = suite.options(**opened)
    options = GenerateOptions(128, sampling, ignore_eos=True)
    found = compared(bundle, entrants, prompts or suite.code(), options, recorder, repeats=repeats)
    return found.rows()
