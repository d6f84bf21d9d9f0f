"""Implements ``edgedec verify --matrix``: all cases, drafters and lossless rules.

The chosen drafter runs all cases. The other drafters, measured draft lengths and the rule ``match``
run a few that use most of the engine; ``speculative`` guarantees a seed's text only if nothing is
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgedec.bench import cases as asking
from edgedec.bench.cases import GREEDY, Case
from edgedec.bench.replay import replay
from edgedec.bench.verification import OnText, Progress, Verification, VerificationRow, Way
from edgedec.bench.verify import Prompts, Texts, check, decode, divergences, plainly, row, tokens_of
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, SpeculativeSampling
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

# Draft length if the user leaves it open: measured cost may choose not to draft.
DRAFT_LENGTH = 4
_TREE = {"draft_length": 6, "draft_depth": 2}
STOP, EVERYTHING = "stop strings", "all at once"
SHORT = frozenset({GREEDY, "sampled", STOP, EVERYTHING})
NOTHING_DRAWN = frozenset({GREEDY, "repetition penalty", STOP, "end of text"})


@dataclass(slots=True)
class _Plain:
    """Texts of plain decoding.

    Attributes:
        cases: all that are compared.
        texts: of every case.
        notes: what was left out or shows little.

    """

    cases: list[Case]
    texts: Texts
    notes: list[str] = field(default_factory=list)


def verify_matrix(
    bundle: str | Path,
    prompts: Prompts,
    asked: GenerateOptions,
    *,
    options: OpenOptions | None = None,
    on_text: OnText | None = None,
) -> Verification:
    """Compare plain with speculative text in every case of the matrix.

    Args:
        bundle: see ``verify``.
        prompts: (name, prompt) pairs.
        asked: length, temperature and seed; the cases set everything else.
        options: the drafter and the rule of all cases, and load options.
        on_text: called with texts done and texts to do.

    Raises:
        InputError: no prompts, or options that draft nothing or guarantee no text.
        BundleError: the bundle is damaged.

    """
    options = options or OpenOptions()
    check(bundle, prompts, asked, options)
    progress = Progress(on_text)
    with Pipeline.open(bundle, plainly(options)) as pipeline:
        if pipeline.plan["row_invariant"]:
            # Opened alike for all drafters: one that needs branches would open without row
            # invariance.
            options = replace(options, row_invariant=True)
        plain = _plain(pipeline, prompts, asked, progress)
        ways = list(_ways(options, _drafters(pipeline, options.draft)))
    progress.expect(sum(len(_of(way, plain.cases)) for way in ways) * len(prompts))
    drafted, plan = _speculative(bundle, prompts, ways, plain, progress)
    found = divergences(bundle, options, prompts, plain.cases, (plain.texts, drafted))
    rows = [
        row(way.name, case, drafted[way.name], found)
        for way in ways
        if way.name in drafted
        for case in _of(way, plain.cases)
    ]
    notes = [*plain.notes, *_idle(rows)]
    return Verification(rows, tokens_of(plain.texts), plan, found, notes)


def _speculative(
    bundle: str | Path, prompts: Prompts, ways: Sequence[Way], plain: _Plain, progress: Progress
) -> tuple[dict[str, Texts], dict[str, Any]]:
    """Decode each way's cases; return texts by way and the first way's plan.

    A way that the pair does not support is left out with a note, unless it is the first.
    """
    drafted: dict[str, Texts] = {}
    plan: dict[str, Any] = {}
    for way in ways:
        try:
            with Pipeline.open(bundle, way.options) as pipeline:
                plan = plan or pipeline.plan
                cases = _of(way, plain.cases)
                drafted[way.name] = decode(pipeline, prompts, cases, progress)
        except (InputError, RuntimeUnavailable) as error:
            if not drafted:
                raise
            plain.notes.append(f"{way.name}: left out, {error}")
    return drafted, plan


def _plain(
    pipeline: Pipeline, prompts: Prompts, asked: GenerateOptions, progress: Progress
) -> _Plain:
    """Decode plainly: first cases that need no text, then those made from texts."""
    count = len(prompts)
    first = asking.by_options(asked, count)
    unstopped = asking.everything(asked, count)
    # Four more cases are made below, and one that only serves to make them.
    progress.expect((len(first) + 6) * count)
    texts = decode(pipeline, prompts, [*first, unstopped], progress)
    by_case = {case.name: [texts[case.name, n] for n in range(count)] for case in first}
    by_case[EVERYTHING] = [texts.pop((EVERYTHING, n)) for n in range(count)]
    more = [
        asking.biased(asked, by_case["sampled"]),
        asking.stopped(STOP, first[0], by_case[GREEDY]),
        asking.stopped(EVERYTHING, unstopped, by_case[EVERYTHING]),
    ]
    notes = []
    eos = pipeline.target.info.eos_ids
    if eos:
        encode = pipeline.tokenizer.encode
        encoded = [encode(p) if isinstance(p, str) else list(p) for _, p in prompts]
        logits = [
            replay(pipeline.target, tokens, text.token_ids, 1)
            for tokens, text in zip(encoded, by_case[GREEDY], strict=True)
        ]
        more += asking.ended(first[0], by_case[GREEDY], logits, eos[0])
    else:
        notes.append("end of text: left out, the model has no end-of-text token")
    texts |= decode(pipeline, prompts, more, progress)
    cases = [*first, *more]
    notes += _without_effect(cases, texts, count)
    return _Plain(cases, texts, notes)


def _drafters(pipeline: Pipeline, draft: str) -> list[str]:
    """Return the drafters that this pair can run, except the one ``auto`` stands for."""
    pair = pipeline.pair
    auto = drafting.default(with_model=pair.draft is not None)
    left_out = (PLAIN, auto) if draft == "auto" else (PLAIN,)
    names = [name for name in drafting.usable() if name not in left_out]
    if pair.draft is None:
        return [name for name in names if not drafting.info(name).needs_model]
    # Drafting by text is for pairs with different tokenizers.
    return [name for name in names if not (drafting.info(name).by_text and pair.shared_tokenizer)]


def _ways(options: OpenOptions, drafters: Sequence[str]) -> Iterator[Way]:
    """Yield the ways of drafting, the chosen one first."""
    open_length = options.draft_length == "auto"

    def fixed(**changes: object) -> OpenOptions:
        length = {"draft_length": DRAFT_LENGTH} if open_length else {}
        return replace(options, **{**length, **changes})  # type: ignore[arg-type]

    yield Way(options.draft, fixed(**_shape(options.draft, open_length)))
    if open_length:
        yield Way(f"{options.draft}, lengths by cost", options, SHORT)
    for name in drafters:
        if name != options.draft:
            changes = {"draft": name, **_shape(name, open_length)}
            yield Way(name, fixed(**changes), SHORT)
    if options.accept not in (None, GumbelCoupling.name, SampleAndMatch.name):
        return
    for rule in {GumbelCoupling.name, SampleAndMatch.name} - {options.accept or "coupling"}:
        yield Way(f"{options.draft}, --accept {rule}", fixed(accept=rule), SHORT)
    rule = SpeculativeSampling.name
    yield Way(f"{options.draft}, --accept {rule}", fixed(accept=rule), NOTHING_DRAWN)


def _shape(drafter: str, open_length: bool) -> dict[str, int]:
    """Return options that make trees branch."""
    return dict(_TREE) if open_length and drafting.info(drafter).needs_branches else {}


def _of(way: Way, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if way.cases is None or case.name in way.cases]


def _without_effect(cases: Sequence[Case], texts: Texts, count: int) -> list[str]:
    """Return notes on cases whose option had no effect."""
    notes = []
    for case in cases:
        if case.base is not None and all(
            texts[case.name, n].token_ids == texts[case.base, n].token_ids for n in range(count)
        ):
            notes.append(f"{case.name}: changes none of these texts, so it shows little")
        missing = sum(due is None for due in case.ends)
        if missing:
            notes.append(f"{case.name}: nothing to end {missing} of {count} texts was found")
    return notes


def _idle(rows: Sequence[VerificationRow]) -> list[str]:
    """Return notes on ways in which nothing was drafted."""
    ways = dict.fromkeys(one.way for one in rows)
    return [
        f"{way}: nothing was drafted, so nothing was compared"
        for way in ways
        if not any(one.drafted_tokens for one in rows if one.way == way)
    ]
