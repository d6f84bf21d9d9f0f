"""Measures how fast a bundle decodes on this machine: every drafter against plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgedec.compare.interleaved import Comparison, OnProgress, compare
from edgedec.compare.records import Recorder, recording
from edgedec.decoding import drafting
from edgedec.loading.build import OpenOptions, find_pair
from edgedec.loading.drafters import drafter_name
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PLAIN = "plain"
# Name of the file of raw records.
RECORDS = "bundle"
# Adds records: gets the prompts, the comparison and the recorder.
Also = Callable[[Sequence[tuple[str, Prompt]], Comparison, Recorder], None]


def entrants(
    common: OpenOptions, *, has_draft: bool, has_mask: bool = False, has_head: bool = False
) -> dict[str, OpenOptions]:
    """Return plain decoding at its fastest (no padding), ``auto``, and each drafter that can run.

    Other composites are left out, since ``auto`` is one and their parts run on their own.

    Args:
        has_mask: it was trained to draft several tokens in a pass.

    """
    plain = common.changed(drafter="none", batch_invariant=False)
    infos = {name: drafting.info(name) for name in drafting.usable()}
    able = [n for n in drafting.planned() if has_draft or not infos[n].needs_model]
    able = [n for n in able if has_head or not infos[n].needs_head]
    able += [n for n, of in infos.items() if of.needs_mask and has_mask]
    drafters = [drafting.AUTO, *(name for name in able if not drafting.info(name).parts)]
    return {PLAIN: plain, **{name: common.changed(drafter=name) for name in drafters}}


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


def compared(
    bundle: str | Path,
    entrants: Mapping[str, OpenOptions],
    prompts: Sequence[tuple[str, Prompt]],
    options: GenerateOptions | Sequence[GenerateOptions],
    recorder: Recorder,
    *,
    repeats: int = 1,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Open every entrant on one bundle and compare them; the first is the baseline.

    Texts come again and again, so that none is kept for drafts of a later one.
    """
    each = [options] * len(prompts) if isinstance(options, GenerateOptions) else options
    alone = [replace(one, owner=None) for one in each]
    with opened(bundle, entrants) as pipelines:
        return compare(
            pipelines, prompts, alone, recorder, repeats=repeats, on_progress=on_progress
        )


@dataclass(frozen=True, slots=True)
class DrafterTask:
    """What to compare every drafter on.

    Attributes:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts: (name, prompt) pairs.
        common: options of all entrants: threads, another draft model, devices.
        repeats: runs of each text.
        source: description of where the prompts come from.

    """

    bundle: str | Path
    prompts: Sequence[tuple[str, Prompt]]
    options: GenerateOptions
    common: OpenOptions = field(default_factory=OpenOptions)
    repeats: int = 1
    source: str = ""


def bench_bundle(
    asked: DrafterTask,
    out: Path,
    on_progress: OnProgress | None = None,
    also: Also | None = None,
) -> Comparison:
    """Compare every drafter; raw records are in ``out/bundle.jsonl``.

    ``also`` may add records of its own, after the comparison.
    """
    ways = entrants_of(asked)
    with recording(out, RECORDS) as recorder:
        recorder.add(kind="about", **about(asked))
        found = compared(
            asked.bundle, ways, asked.prompts, asked.options, recorder,
            repeats=asked.repeats, on_progress=on_progress,
        )  # fmt: skip
        if also is not None:
            also(asked.prompts, found, recorder)
    return found


def entrants_of(asked: DrafterTask) -> dict[str, OpenOptions]:
    """Return all that are compared on a bundle, plain decoding first."""
    common = asked.common
    pair = find_pair(asked.bundle, common)
    mask = None if pair.draft is None else pair.draft.mask
    return entrants(
        common,
        has_draft=pair.draft is not None,
        has_mask=mask is not None and pair.shared_tokenizer,
        # Streamed weights show no states.
        has_head=drafter_name(pair, common) == drafting.HEADED
        and common.load.own.get("weight_memory") is None,
    )


def about(asked: DrafterTask) -> dict[str, Any]:
    """Return what is compared, for a record."""
    sampling = asked.options.sampling
    how = "greedy" if sampling.greedy else f"temperature {sampling.temperature:g}"
    return {
        "model": Path(asked.bundle).name,
        "tokens": asked.options.max_new_tokens,
        "sampling": how,
        "source": asked.source,
        "repeats": asked.repeats,
    }
