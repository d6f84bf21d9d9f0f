"""Measures each drafter's rounds in a short trial at the models' quickest places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edgedec.decoding import drafting
from edgedec.errors import ProfileError
from edgedec.loading.sources import Models, Source
from edgedec.profiling import trial
from edgedec.profiling.children import DRAFT, HEAD, TARGET
from edgedec.profiling.prompts import Text, encode
from edgedec.profiling.together import fits_together
from edgedec.profiling.trial import TrialJob
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured
from edgedec.records.rounds import DrafterRounds

# Longest draft whose acceptance is measured.
LENGTH = 8
_PROMPT_TOKENS = 512
_TEXTS, _FEWEST, _MOST = 3, 16, 32
_BUDGET_S = 10.0


@dataclass(slots=True)
class MeasuredRounds:
    """The rounds of every drafter; see ``Profile``."""

    rounds: tuple[DrafterRounds, ...] = ()
    draft_overhead_s: float = 0.0
    head_overhead_s: float = 0.0
    notes: list[str] = field(default_factory=list)


def rounds(
    models: Models,
    measured: Sequence[Measured],
    prompts: Sequence[Sequence[int]],
    temperature: float,
    memory: int | None = None,
) -> MeasuredRounds:
    """Decode a few texts with every drafter at the quickest places.

    Args:
        prompts: tokens of the texts.
        memory: most bytes that all models may take together; if they take more, plans run one after
            the other. None sets no limit.

    """
    found = MeasuredRounds()
    target, draft = quickest(measured, TARGET), quickest(measured, DRAFT)
    if target is None:
        return found
    head = quickest(measured, HEAD) if target.shows_states else None
    plans = list(_plans(target, draft, head))
    chosen = some(prompts, _TEXTS)
    # A plan that drafts takes about half of plain decoding's time.
    each_s = target.seconds(1, _PROMPT_TOKENS) / 2
    new_tokens = max(_FEWEST, min(_MOST, int(_BUDGET_S / len(chosen) / len(plans) / each_s)))
    texts = fitting(chosen, new_tokens, [target, draft])
    places = {(one.role, one.place): one for one in measured}
    job = TrialJob(
        models.target, models.draft, tuple(plans), texts, new_tokens, temperature,
        together=fits_together(plans, memory, lambda role, place: places[role, place], head),
    )  # fmt: skip
    try:
        outcome = trial.run(job)
    except ProfileError as error:
        found.notes.append(f"every drafter: {error}")
        return found
    found.rounds = tuple(one for one in outcome.rounds if one is not None)
    failed = (f"{plans[int(number)].drafter}: {why}" for number, why in outcome.failed.items())
    found.notes += dict.fromkeys(failed)
    if draft is not None and outcome.draft_token_s:
        least = draft.seconds(1, _PROMPT_TOKENS)
        found.draft_overhead_s = max(0.0, outcome.draft_token_s - least)
    if head is not None and outcome.head_token_s:
        least = head.seconds(1, _PROMPT_TOKENS)
        found.head_overhead_s = max(0.0, outcome.head_token_s - least)
    return found


def _plans(target: Measured, draft: Measured | None, head: Measured | None) -> Iterator[Plan]:
    """Yield plain decoding, and each drafter with a fixed length and with one decided each round.

    A drafter that has no fixed lengths and is not a composite drafts trees of a fixed size.
    """
    yield Plan(target.place)
    if not target.rolls_back:
        return
    for name in drafting.planned():
        info = drafting.info(name)
        if (info.needs_branches and not target.tree) or (info.needs_model and draft is None):
            continue
        if info.needs_head and head is None:
            continue
        place = draft.place if info.needs_model and draft is not None else None
        if info.lengths or not info.parts:
            yield Plan(target.place, place, name, max(info.lengths, default=LENGTH))
        yield Plan(target.place, place, name, None)


def quickest(measured: Sequence[Measured], role: str) -> Measured | None:
    """Return the usable place with the shortest pass, preferring those that reserve no cores."""
    usable = [one for one in measured if one.role == role and one.parity.usable and one.times]
    if role != TARGET:
        usable = [one for one in usable if one.rolls_back]
    return min(usable, key=lambda m: (m.place.cores is not None, m.seconds(1, 0)), default=None)


def encoded(sources: Mapping[str, Sequence[Source]], texts: Sequence[Text]) -> list[list[int]]:
    """Return the last tokens of each text; texts without tokens are left out.

    Raises:
        ProfileError: none of them has a token.
        InputError: messages that the model's chat template cannot render.

    """
    tokenizer = sources[TARGET][0].read_tokenizer()
    found = [tokens for text in texts if (tokens := encode(text, tokenizer)[-_PROMPT_TOKENS:])]
    if not found:
        raise ProfileError(
            "no calibration text has a token: expected one at least that is not empty: give"
            " others with --prompts"
        )
    return found


def some(prompts: Sequence[Sequence[int]], most: int) -> list[Sequence[int]]:
    """Return at most this many, evenly spaced, since a file's first lines may be of one kind."""
    count = min(most, len(prompts))
    return [prompts[number * len(prompts) // count] for number in range(count)]


def fitting(
    prompts: Sequence[Sequence[int]], new_tokens: int, models: Sequence[Measured | None]
) -> tuple[tuple[int, ...], ...]:
    """Return the ends of prompts that leave room for new tokens in these models' contexts."""
    context = min(one.max_context for one in models if one is not None)
    room = max(1, context - new_tokens - 1, context // 2)
    return tuple(tuple(prompt[-room:]) for prompt in prompts)
