"""How fast a bundle decodes on this machine: every drafter against plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from edgedec._support.model_path import is_gguf
from edgedec.bench.compare import Comparison, OnProgress, compare
from edgedec.bench.records import Recorder, recording
from edgedec.bundle import Bundle
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to decode: a name for the table and how the pipeline is opened."""

    name: str
    options: OpenOptions


def candidates(common: OpenOptions, *, has_draft: bool) -> list[Candidate]:
    """Plain decoding at its fastest (no padding), then every drafter that can run."""
    plain = replace(common, draft="none", row_invariant=False)
    drafters = ["auto", "lookup", "recycle"] + (["model", "tree"] if has_draft else [])
    return [Candidate(PLAIN, plain), *(Candidate(n, replace(common, draft=n)) for n in drafters)]


def race(
    bundle: str | Path,
    entrants: Sequence[Candidate],
    prompts: Sequence[tuple[str, Prompt]],
    options: GenerateOptions | Sequence[GenerateOptions],
    recorder: Recorder,
    *,
    repeats: int = 1,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Open every entrant on one bundle and compare them; the first is the baseline."""
    with ExitStack() as stack:
        pipelines = {
            entrant.name: stack.enter_context(Pipeline.open(bundle, entrant.options))
            for entrant in entrants
        }
        return compare(
            pipelines, prompts, options, recorder, repeats=repeats, on_progress=on_progress
        )


def bench_bundle(
    bundle: str | Path,
    prompts: Sequence[tuple[str, Prompt]],
    options: GenerateOptions,
    *,
    out: Path,
    common: OpenOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Every drafter on these prompts; raw records in ``out/bundle.jsonl``.

    Args:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts, options: what to decode.
        out: the folder of the records.
        common: of all entrants: threads, a draft model of its own, devices.
        on_progress: see ``compare``.

    """
    common = common or OpenOptions()
    own_draft = not is_gguf(bundle) and Bundle.open(bundle).draft is not None
    entrants = candidates(common, has_draft=own_draft or common.draft_model is not None)
    with recording(out, "bundle") as recorder:
        return race(bundle, entrants, prompts, options, recorder, on_progress=on_progress)
