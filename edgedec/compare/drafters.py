"""Measures how fast a bundle decodes on this machine: every drafter against plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.compare.interleaved import Comparison, OnProgress, compare
from edgedec.compare.questions import (
    WARM_UPS,
    Question,
    QuestionAnswerer,
    by_category,
    first_prompt,
)
from edgedec.compare.records import Recorder, recording
from edgedec.decoding import drafting
from edgedec.loading.build import OpenOptions, find_pair
from edgedec.loading.drafters import drafter_name
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PLAIN = "plain"
# Name of the file of raw records.
RECORDS = "bundle"


def entrants(
    common: OpenOptions, *, has_draft: bool, has_mask: bool = False, has_head: bool = False
) -> dict[str, OpenOptions]:
    """Return plain decoding at its fastest (no padding), ``auto``, and each drafter that can run.

    Other composites are left out, since ``auto`` is one and their parts run on their own.

    Args:
        common: options of all.
        has_draft: there is a draft model.
        has_mask: it was trained to draft several tokens in a pass.
        has_head: the target has a head.

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
    """Open every entrant on one bundle and compare them; the first is the baseline."""
    with opened(bundle, entrants) as pipelines:
        return compare(
            pipelines, prompts, options, recorder, repeats=repeats, on_progress=on_progress
        )


@dataclass(frozen=True, slots=True)
class DrafterTask:
    """What to compare every drafter on.

    Attributes:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        prompts: (name, prompt) pairs; or questions, by Spec-Bench's protocol.
        options: options of each text.
        common: options of all entrants: threads, another draft model, devices.
        repeats: runs of each text.
        source: description of where the prompts come from.

    """

    bundle: str | Path
    prompts: Sequence[tuple[str, Prompt]] | Sequence[Question]
    options: GenerateOptions
    common: OpenOptions = field(default_factory=OpenOptions)
    repeats: int = 1
    source: str = ""


def bench_bundle(
    asked: DrafterTask,
    out: Path,
    on_progress: OnProgress | None = None,
    also: Callable[[Sequence[tuple[str, Prompt]], Comparison, Recorder], None] | None = None,
) -> tuple[Comparison, list[dict[str, Any]]]:
    """Compare every drafter; raw records are in ``out/bundle.jsonl``.

    ``also`` may add records of its own, after the comparison.

    Returns:
        The comparison, and with questions the figures of each category and candidate.

    """
    ways = _entrants(asked)
    with recording(out, RECORDS) as recorder:
        recorder.add(kind="about", **_about(asked))
        with opened(asked.bundle, ways) as pipelines:
            found, prompts = _raced(asked, pipelines, recorder, on_progress)
        rows = _categories(asked, recorder, found)
        if also is not None:
            also(prompts, found, recorder)
    return found, rows


def _entrants(asked: DrafterTask) -> dict[str, OpenOptions]:
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


def _raced(
    asked: DrafterTask,
    pipelines: Mapping[str, Pipeline],
    recorder: Recorder,
    on_progress: OnProgress | None,
) -> tuple[Comparison, list[tuple[str, Prompt]]]:
    """Return the comparison, and each prompt, or the first turn of each question."""
    questions = [one for one in asked.prompts if isinstance(one, Question)]
    if not questions:
        prompts = [one for one in asked.prompts if not isinstance(one, Question)]
        found = compare(
            pipelines, prompts, asked.options, recorder,
            repeats=asked.repeats, on_progress=on_progress,
        )  # fmt: skip
        return found, prompts
    found = compare(
        {name: QuestionAnswerer(pipeline) for name, pipeline in pipelines.items()},
        [(one.id, one) for one in questions],
        asked.options,
        recorder,
        repeats=asked.repeats,
        warm_ups=WARM_UPS,
        on_progress=on_progress,
    )
    opened_by = next(iter(pipelines.values()))
    return found, [(one.id, first_prompt(opened_by, one)) for one in questions]


def _categories(asked: DrafterTask, recorder: Recorder, found: Comparison) -> list[dict[str, Any]]:
    questions = [one for one in asked.prompts if isinstance(one, Question)]
    rows = by_category(questions, recorder.runs, found) if questions else []
    recorder.table(rows, "category")
    for question in questions:
        recorder.add(kind="question", prompt=question.id, category=question.category)
    return rows


def _about(asked: DrafterTask) -> dict[str, Any]:
    sampling = asked.options.sampling
    how = "greedy" if sampling.greedy else f"temperature {sampling.temperature:g}"
    return {
        "model": Path(asked.bundle).name,
        "tokens": asked.options.max_new_tokens,
        "sampling": how,
        "source": asked.source,
        "repeats": asked.repeats,
    }
