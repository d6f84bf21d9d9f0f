"""``python -m benchmarks matrix``: all cases, drafters and lossless rules.

The chosen drafter runs all cases. The other drafters, measured draft lengths and the rule ``match``
run a few that use most of the engine; ``speculative`` guarantees a seed's text only if nothing is
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.certificate import cases as asking
from benchmarks.certificate.ways import (
    Comparable,
    Way,
    alike_for_all,
    compared,
    drafters,
    with_length,
)
from benchmarks.program import SAMPLED_SEED, SAMPLED_TEMPERATURE, LoadProgram
from edgedec.cli import _library, _model, _options, _progress, _prompts
from edgedec.cli.verify import conclude
from edgedec.compare.interleaved import OnProgress, Progress
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, SpeculativeSampling
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.grammar.spec import json_object
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.verify.near_ties import rescore
from edgedec.verify.results import GREEDY, Case, Verification
from edgedec.verify.same_texts import Prompts, Texts, check, decode, plainly

STOP, EVERYTHING = "stop strings", "all at once"
SHORT = frozenset({GREEDY, "sampled", STOP, EVERYTHING, "JSON schema"})
NOTHING_DRAWN = frozenset({GREEDY, "repetition penalty", STOP, "end of text", "JSON"})


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
    on_text: OnProgress | None = None,
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
        options = alike_for_all(pipeline, options)
        plain = _plain(pipeline, prompts, asked, progress)
        ways = list(_ways(options, drafters(pipeline.pair, options)))
    found = compared(Comparable(bundle, options, prompts, plain.cases, plain.texts), ways, progress)
    return replace(found, notes=[*plain.notes, *found.notes])


@click.command(cls=LoadProgram)
@_model.model
@_options.options(_options.texts(count=4, least_tokens=1, tokens=48))
@SAMPLED_TEMPERATURE
@SAMPLED_SEED
@_options.options(_options.OPEN, _options.LOAD)
@_options.as_json
def command(bundle: str, prompts: Path | None, count: int, as_json: bool, **chosen: Any) -> None:
    """Compare all sampling options with plain decoding, and with them drafters and rules.

    Stop strings, logprobs, ends of text, JSON, schemas and expressions (with the extra grammar) are
    among them. The exit code is that of `edgedec verify`.

    \b
    python -m benchmarks matrix demo --batch-invariant
    """
    bundle = _library.path(bundle, chosen["format"])
    sampling = SamplingParams(temperature=chosen["temperature"], seed=chosen["seed"])
    asked = GenerateOptions(chosen["max_new_tokens"], sampling, ignore_eos=True)
    options = _options.open_options(chosen, bundle)
    with _progress.progress("texts") as on_text:
        found = verify_matrix(
            bundle, _prompts.named(prompts, count), asked, options=options, on_text=on_text
        )
    conclude(found, _prompts.described(prompts, count), as_json=as_json)


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
            rescore(pipeline.target, tokens, text.token_ids, 1)
            for tokens, text in zip(encoded, by_case[GREEDY], strict=True)
        ]
        more += asking.ended(first[0], by_case[GREEDY], logits, eos[0])
    else:
        notes.append("end of text: left out, the model has no end-of-text token")
    constrained = asking.constrained(asked, count)
    try:
        pipeline.grammars.constraint(json_object())
    except (InputError, RuntimeUnavailable) as error:
        notes.append(f"JSON, schemas and regular expressions: left out, {error}")
    else:
        more += constrained
        progress.expect(len(constrained) * count)
    texts |= decode(pipeline, prompts, more, progress)
    cases = [*first, *more]
    notes += _without_effect(cases, texts, count)
    return _Plain(cases, texts, notes)


def _ways(options: OpenOptions, drafters: Sequence[str]) -> Iterator[Way]:
    """Yield the ways of drafting, the chosen one first."""
    yield Way(options.drafter, with_length(options))
    if options.draft_length == "auto":
        yield Way(f"{options.drafter}, lengths by cost", options, SHORT)
    for name in drafters:
        yield Way(name, with_length(options.changed(drafter=name)), SHORT)
    if options.accept not in (None, GumbelCoupling.name, SampleAndMatch.name):
        return
    for rule in {GumbelCoupling.name, SampleAndMatch.name} - {options.accept or "coupling"}:
        by_rule = with_length(options.changed(accept=rule))
        yield Way(f"{options.drafter}, --accept {rule}", by_rule, SHORT)
    rule = SpeculativeSampling.name
    by_rule = with_length(options.changed(accept=rule))
    yield Way(f"{options.drafter}, --accept {rule}", by_rule, NOTHING_DRAWN)


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
