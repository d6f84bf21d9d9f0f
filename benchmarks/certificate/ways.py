"""Compares drafters, rules and schedules with the plain texts of the same prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.compare.interleaved import Progress
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import DrafterInfo
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.loading.build import OpenOptions
from edgedec.loading.drafters import drafter_name
from edgedec.loading.sources import Pair, Source
from edgedec.pipeline import Pipeline
from edgedec.verify.results import Case, Verification, VerificationRow
from edgedec.verify.same_texts import Prompts, Texts, decode, divergences, row, tokens_of

# Draft length if the user leaves it open: measured cost may choose not to draft.
DRAFT_LENGTH = 4
TREE_LENGTH, TREE_DEPTH = 6, 2


@dataclass(frozen=True, slots=True)
class Way:
    """A configuration to compare with plain decoding.

    Attributes:
        name: for tables.
        options: options that open the pipeline.
        cases: names of the cases it runs; None is all.
        texts: the texts it runs, as case and index of the prompt; None is all of these cases.

    """

    name: str
    options: OpenOptions
    cases: frozenset[str] | None = None
    texts: frozenset[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Comparable:
    """Plain texts that others are compared with.

    Attributes:
        bundle, options: how they were decoded, apart from the drafter.
        prompts: (name, prompt) pairs.
        cases: the options of each text.
        plain: every prompt's text in every case, ``GREEDY`` among them.

    """

    bundle: str | Path
    options: OpenOptions
    prompts: Prompts
    cases: Sequence[Case]
    plain: Texts


def alike_for_all(plain: Pipeline, options: OpenOptions) -> OpenOptions:
    """Return options with which every drafter and rule opens the target as plain decoding did.

    By themselves, some drafters and rules open it with batch invariance and others without.
    """
    return options.changed(batch_invariant=plain.plan["batch_invariant"])


def drafters(pair: Pair, options: OpenOptions) -> list[str]:
    """Return the drafters that this pair can run, except the one that the options open."""
    left_out = (PLAIN, drafter_name(pair, options))
    names = [name for name in drafting.usable() if name not in left_out]
    if pair.head is None:
        names = [name for name in names if not drafting.info(name).needs_head]
    if pair.draft is None:
        return [name for name in names if not drafting.info(name).needs_model]
    return [name for name in names if _able(drafting.info(name), pair, pair.draft)]


def _able(info: DrafterInfo, pair: Pair, draft: Source) -> bool:
    # Drafting by text is for pairs with different tokenizers, several tokens a pass for equal ones.
    by_text, at_once = not pair.shared_tokenizer, draft.mask is not None and pair.shared_tokenizer
    return (by_text or not info.by_text) and (at_once or not info.needs_mask)


def with_length(options: OpenOptions) -> OpenOptions:
    """Return options with a fixed draft length, unless they have one; trees branch."""
    if options.draft_length != "auto":
        return options
    if drafting.info(options.drafter).needs_branches:
        return options.changed(draft_length=TREE_LENGTH, draft_depth=TREE_DEPTH)
    return options.changed(draft_length=DRAFT_LENGTH)


def compared(given: Comparable, ways: Sequence[Way], progress: Progress) -> Verification:
    """Decode each configuration's texts and compare them with the plain ones.

    A configuration that the pair does not support is left out with a note, unless it is the first.

    Raises:
        InputError, RuntimeUnavailable: the first configuration cannot be opened.

    """
    progress.expect(sum(_count(way, given) for way in ways))
    drafted, plan, notes = _decoded(given, ways, progress)
    texts = given.plain, drafted
    found = divergences(given.bundle, given.options, given.prompts, given.cases, texts)
    rows = [
        row(way.name, case, drafted[way.name], found)
        for way in ways
        if way.name in drafted
        for case in _of(way, given.cases)
    ]
    rows = [one for one in rows if one.texts]
    return Verification(rows, tokens_of(given.plain), plan, found, [*notes, *_idle(rows)])


def _decoded(
    given: Comparable, ways: Sequence[Way], progress: Progress
) -> tuple[Mapping[str, Texts], dict[str, Any], list[str]]:
    """Return texts by configuration, the first one's plan, and notes on those left out."""
    drafted: dict[str, Texts] = {}
    plan: dict[str, Any] = {}
    notes: list[str] = []
    for way in ways:
        try:
            with Pipeline.open(given.bundle, way.options) as pipeline:
                plan = plan or pipeline.plan
                cases = _of(way, given.cases)
                texts = decode(pipeline, given.prompts, cases, progress, way.texts)
                drafted[way.name] = texts
                notes += [f"{way.name}: {note}" for note in pipeline.notes]
        except (InputError, RuntimeUnavailable) as error:
            if not drafted:
                raise
            notes.append(f"{way.name}: left out, {error}")
    return drafted, plan, notes


def _of(way: Way, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if way.cases is None or case.name in way.cases]


def _count(way: Way, given: Comparable) -> int:
    every = len(_of(way, given.cases)) * len(given.prompts)
    return every if way.texts is None else len(way.texts)


def _idle(rows: Sequence[VerificationRow]) -> list[str]:
    """Return notes on configurations in which nothing was drafted."""
    ways = dict.fromkeys(one.way for one in rows)
    return [
        f"{way}: nothing was drafted, so nothing was compared"
        for way in ways
        if not any(one.drafted_tokens for one in rows if one.way == way)
    ]
