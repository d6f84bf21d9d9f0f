"""Measures how fast a bundle decodes on this machine: every drafter against plain decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from edgedec._support.model_path import is_gguf
from edgedec.bench.compare import Comparison, OnProgress, compare
from edgedec.bench.records import Recorder, recording
from edgedec.bundle import Bundle
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PLAIN = "plain"


def entrants(common: OpenOptions, *, has_draft: bool) -> dict[str, OpenOptions]:
    """Return plain decoding at its fastest (no padding), then every drafter that can run."""
    plain = replace(common, draft="none", row_invariant=False)
    drafters = ["auto", "lookup", "recycle"] + (["model", "tree"] if has_draft else [])
    return {PLAIN: plain, **{name: replace(common, draft=name) for name in drafters}}


@contextmanager
def opened(
    bundle: str | Path, entrants: Mapping[str, OpenOptions]
) -> Iterator[dict[str, Pipeline]]:
    """Open pipelines by name, and close them at the end."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Pipeline.open(bundle, options))
            for name, options in entrants.items()
        }


def race(
    bundle: str | Path,
    entrants: Mapping[str, OpenOptions],
    prompts: Sequence[tuple[str, Prompt]],
    options: GenerateOptions | Sequence[GenerateOptions],
    recorder: Recorder,
    *,
    repeats: int = 1,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Open every entrant on one bundle and compare them; the first is the baseline."""
    with opened(bundle, entrants) as pipelines:
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
    """Race every drafter on these prompts; raw records are in ``out/bundle.jsonl``.

    Args:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts, options: what to decode.
        out: the folder of the records.
        common: options of all entrants: threads, another draft model, devices.
        on_progress: see ``compare``.

    """
    common = common or OpenOptions()
    own_draft = not is_gguf(bundle) and Bundle.open(bundle).draft is not None
    ways = entrants(common, has_draft=own_draft or common.draft_model is not None)
    with recording(out, "bundle") as recorder:
        return race(bundle, ways, prompts, options, recorder, on_progress=on_progress)
