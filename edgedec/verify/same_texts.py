"""Compares the text of speculative decoding with that of plain decoding on this machine.

Both sides decode the same prompts, and tokens, text, finish reason and log-probabilities are
compared (with a seed, the Gumbel coupling guarantees the same text when sampling as well). Where
two texts diverge, arithmetic may be the reason: a row's logits can depend on how many rows its pass
has. So the first divergence of a prompt, and no later one, may be a near-tie; see
``edgedec.verify.near_ties``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgedec._support.model_path import is_gguf
from edgedec.bundle import Bundle
from edgedec.compare.interleaved import OnProgress, Progress
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, rule
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Prompt
from edgedec.verify.near_ties import NearTies
from edgedec.verify.outcomes import DecodedRequest, FirstDifference, divergence, same
from edgedec.verify.results import GREEDY, Case, Verification, VerificationRow, alike

Prompts = Sequence[tuple[str, Prompt]]
# Generations by case and index of the prompt.
Texts = dict[tuple[str, int], Generation]
# The sampling that is compared by default, in addition to greedy decoding.
_ASKED = GenerateOptions(sampling=SamplingParams(temperature=0.8, seed=0), ignore_eos=True)
# Where no draft was expected to pay, so that nothing was drafted, texts are drafted with this.
_LENGTH = 3
_IDLE = (
    "drafts were not expected to pay here, so none were made: compared with --draft-length"
    f" {_LENGTH}"
)


def verify(
    bundle: str | Path,
    prompts: Prompts,
    asked: GenerateOptions | None = None,
    *,
    options: OpenOptions | None = None,
    on_text: OnProgress | None = None,
    plain: Texts | None = None,
) -> Verification:
    """Compare plain with speculative text on these prompts, greedy and as asked.

    Args:
        bundle: a bundle's folder, or ``demo``, whose files are all hashed first; or a GGUF file.
        prompts: (name, prompt) pairs.
        asked: the second text of each prompt; the first is the same without its temperature,
            filters, penalties and bias, and the only one if ``asked`` has none of them.
            Default: 128 tokens at temperature 0.8, seed 0.
        options: options of the speculative side; the plain side differs only in the drafter. Where
            they leave the length to the policy or to the last plan and nothing is drafted, the
            prompts are decoded once more, in drafts of 3.
        on_text: called with texts done and texts to do.
        plain: stores the plain texts for another call that differs only in the drafter.

    Raises:
        InputError: no prompts, or options that draft nothing or guarantee no text.
        BundleError: the bundle is damaged.

    """
    options, asked = options or OpenOptions(), asked or _ASKED
    check(bundle, prompts, asked, options)
    cases = _cases(asked, len(prompts))
    plain = {} if plain is None else plain
    progress = Progress(on_text)
    progress.expect(len(prompts) * len(cases) * (1 if plain else 2))
    if not plain:
        with Pipeline.open(bundle, plainly(options)) as pipeline:
            plain.update(decode(pipeline, prompts, cases, progress))
    plan, texts = _speculative(bundle, options, prompts, cases, progress)
    notes = []
    # A plan for this memory, or one from a file, may place the target elsewhere than a length does.
    replaceable = options.plan == "auto" and options.memory is None
    if not _drafts(texts) and options.draft_length == "auto" and replaceable:
        progress.expect(len(prompts) * len(cases))
        options = options.changed(draft_length=_LENGTH)
        plan, texts = _speculative(bundle, options, prompts, cases, progress)
        notes = [_IDLE] if _drafts(texts) else []
    found = divergences(bundle, options, prompts, cases, (plain, {"": texts}))
    rows = [row("", case, texts, found) for case in cases]
    return Verification(rows, tokens_of(plain), plan, found, notes)


def _cases(asked: GenerateOptions, count: int) -> list[Case]:
    """Return the greedy case of so many prompts, and the sampled one if any is asked for."""
    cases = [alike(GREEDY, replace(asked, sampling=SamplingParams()), count)]
    if replace(asked.sampling, seed=None) != SamplingParams():
        cases.append(alike("sampled", asked, count))
    return cases


def _speculative(
    bundle: str | Path,
    options: OpenOptions,
    prompts: Prompts,
    cases: Sequence[Case],
    progress: Progress,
) -> tuple[dict[str, Any], Texts]:
    """Return the plan of the speculative side, and its texts."""
    with Pipeline.open(bundle, options) as pipeline:
        return pipeline.plan, decode(pipeline, prompts, cases, progress)


def _drafts(texts: Texts) -> bool:
    return any(one.metrics.drafted_tokens for one in texts.values())


def plainly(options: OpenOptions) -> OpenOptions:
    """Return the options of the plain side of a comparison: only the drafter differs.

    A drafter that needs branches opens a bundle without batch invariance unless that is requested,
    so plain decoding does as well.
    """
    invariant = options.load.batch_invariant
    trees = invariant is None and drafting.info(options.drafter).needs_branches
    return options.changed(drafter=PLAIN, batch_invariant=False if trees else invariant)


def decode(
    pipeline: Pipeline,
    prompts: Prompts,
    cases: Sequence[Case],
    progress: Progress,
    only: frozenset[tuple[str, int]] | None = None,
) -> Texts:
    """Decode every prompt of these cases, or only these texts of them.

    Each prompt is prefilled from its first token: tokens cached from another text were computed in
    passes of other widths, which the search for near-ties does not repeat.
    """
    texts: Texts = {}
    for case in cases:
        for number, (_, prompt) in enumerate(prompts):
            if only is None or (case.name, number) in only:
                pipeline.forget()
                texts[case.name, number] = pipeline.generate(prompt, case.options[number])
                progress.step()
    return texts


def divergences(
    bundle: str | Path,
    options: OpenOptions,
    prompts: Prompts,
    cases: Sequence[Case],
    texts: tuple[Texts, Mapping[str, Texts]],
) -> list[FirstDifference]:
    """Return the first difference of each pair, and plain texts with a wrong ending.

    Args:
        bundle, options: opened once more, to decode plainly, if something differs.
        prompts: (name, prompt) pairs.
        cases: their names and options.
        texts: the plain ones, and the others by configuration.

    """
    plain, drafted = texts
    found = [one for case in cases for one in _wrong_endings(case, prompts, plain)]
    unlike = [
        (way, case, number)
        for way, there in drafted.items()
        for case in cases
        for number in range(len(prompts))
        if (case.name, number) in there
        and not same(plain[case.name, number], there[case.name, number])
    ]
    if not unlike:
        return found
    with Pipeline.open(bundle, plainly(options)) as pipeline:
        encode = pipeline.tokenizer.encode
        encoded = [encode(p) if isinstance(p, str) else list(p) for _, p in prompts]
        greedy = [plain[GREEDY, number].token_ids for number in range(len(prompts))]
        ties = NearTies(pipeline.target, encoded, greedy)
        for way, case, number in unlike:
            options_ = case.options[number]
            names = case.name, way, prompts[number][0]
            grammar = options_.constraint
            constraint = None if grammar is None else pipeline.grammars.constraint(grammar)
            asked = DecodedRequest(*names, number, encoded[number], options_.sampling, constraint)
            key = case.name, number
            one = divergence(asked, plain[key], drafted[way][key], ties)
            found += [] if one is None else [one]
    return found


def row(way: str, case: Case, texts: Texts, found: Sequence[FirstDifference]) -> VerificationRow:
    """Return the result of one case decoded in one way."""
    there = [texts[key] for key in texts if key[0] == case.name]
    own = [one.near_tie for one in found if (one.way, one.case) == (way, case.name)]
    return VerificationRow(
        way=way,
        case=case.name,
        texts=len(there),
        identical=len(there) - len(own),
        near_ties=sum(own),
        differ=len(own) - sum(own),
        drafted_tokens=sum(one.metrics.drafted_tokens for one in there),
        accepted_tokens=sum(one.metrics.accepted_tokens for one in there),
    )


def tokens_of(texts: Texts) -> int:
    """Return the total number of tokens."""
    return sum(len(one.events) for one in texts.values())


def _wrong_endings(case: Case, prompts: Prompts, plain: Texts) -> list[FirstDifference]:
    found = []
    for number, due in enumerate(case.ends):
        text = plain[case.name, number]
        if due not in (None, text.finish_reason):
            name = prompts[number][0]
            index = len(text.events)
            found.append(
                FirstDifference(case.name, "plain", name, "ending", index, text.finish_reason, due)
            )
    return found


def check(
    bundle: str | Path, prompts: Prompts, asked: GenerateOptions, options: OpenOptions
) -> None:
    """Refuse options that cannot be compared, and a damaged bundle."""
    if not prompts:
        raise InputError("no prompts to verify with: give at least one")
    if options.drafter == PLAIN:
        raise InputError("--drafter none is what verify compares with: choose another drafter")
    accept = rule(options.accept or GumbelCoupling.name)
    # A lossy rule is allowed, to count how many texts it changes.
    if accept.lossless and not isinstance(accept, GumbelCoupling):
        raise InputError(
            f"verify compares texts, and --accept {accept.name} promises their distribution "
            f"only: choose {GumbelCoupling.name} or {SampleAndMatch.name}"
        )
    if not asked.sampling.greedy and asked.sampling.seed is None:
        raise InputError("verify compares sampled texts: give a seed")
    if not is_gguf(bundle):
        Bundle.open(bundle, verify=True)
