"""``edgedec verify --matrix``: every way of asking for a text, every drafter, every rule.

The drafter that was chosen goes through all cases. The other drafters, the lengths that are
chosen by measured cost and the rule ``match`` go through a few that use most of the engine;
``speculative`` promises a seed's text only where nothing is drawn.
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

# Tokens to draft a round where the user leaves it open: measured cost may say none.
DRAFT_LENGTH = 4
_TREE = {"draft_length": 6, "draft_depth": 2}
STOP, EVERYTHING = "stop strings", "all at once"
SHORT = frozenset({GREEDY, "sampled", STOP, EVERYTHING})
NOTHING_DRAWN = frozenset({GREEDY, "repetition penalty", STOP, "end of text"})


@dataclass(slots=True)
class _Plain:
    """What plain decoding wrote.

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
        options: the drafter and the rule that go through all cases, and how to load.
        on_text: called with texts done and texts to do.

    Raises:
        InputError: no prompts, or options that draft nothing or promise no text.
        BundleError: the bundle is damaged.

    """
    options = options or OpenOptions()
    check(bundle, prompts, asked, options)
    progress = Progress(on_text)
    with Pipeline.open(bundle, plainly(options)) as pipeline:
        if pipeline.plan["row_invariant"]:
            # All ways alike: a drafter that needs branches would do without.
            options = replace(options, row_invariant=True)
        plain = _plain(pipeline, prompts, asked, progress)
        ways = list(_ways(options, _drafters(pipeline, options.draft)))
    progress.expect(sum(len(_of(way, plain.cases)) for way in ways) * len(prompts))
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
    found = divergences(bundle, options, prompts, plain.cases, (plain.texts, drafted))
    rows = [
        row(way.name, case, drafted[way.name], found)
        for way in ways
        if way.name in drafted
        for case in _of(way, plain.cases)
    ]
    notes = [*plain.notes, *_idle(rows)]
    return Verification(rows, tokens_of(plain.texts), plan, found, notes)


def _plain(
    pipeline: Pipeline, prompts: Prompts, asked: GenerateOptions, progress: Progress
) -> _Plain:
    """The plain side: first the cases that need no text, then those made from texts."""
    count = len(prompts)
    first = asking.by_options(asked, count)
    unstopped = asking.everything(asked, count)
    # Four more are made below, and one that only serves to make them.
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
    """Those that the models of this pipeline can run, but for the one that ``auto`` is."""
    pair = pipeline.pair
    auto = drafting.default(with_model=pair.draft is not None)
    left_out = (PLAIN, auto) if draft == "auto" else (PLAIN,)
    names = [name for name in drafting.usable() if name not in left_out]
    if pair.draft is None:
        return [name for name in names if not drafting.info(name).needs_model]
    # Drafting by text is for pairs whose tokenizers differ.
    return [name for name in names if not (drafting.info(name).by_text and pair.shared_tokenizer)]


def _ways(options: OpenOptions, drafters: Sequence[str]) -> Iterator[Way]:
    """The chosen way first."""
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
    """Trees are to branch, not to be a chain."""
    return dict(_TREE) if open_length and drafting.info(drafter).needs_branches else {}


def _of(way: Way, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if way.cases is None or case.name in way.cases]


def _without_effect(cases: Sequence[Case], texts: Texts, count: int) -> list[str]:
    """Notes on cases that asked for something and got what they had without it."""
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
    """Notes on ways in which nothing was drafted."""
    ways = dict.fromkeys(one.way for one in rows)
    return [
        f"{way}: nothing was drafted, so nothing was compared"
        for way in ways
        if not any(one.drafted_tokens for one in rows if one.way == way)
    ]
