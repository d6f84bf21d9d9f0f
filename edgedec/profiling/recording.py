"""Records traces and overheads with the pair at its quickest places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from time import perf_counter

from edgedec.decoding.drafting._translated import translated
from edgedec.decoding.translation import Translation
from edgedec.errors import EdgedecError, ProfileError
from edgedec.loading.sources import Source
from edgedec.profiling.children import DRAFT, TARGET
from edgedec.profiling.drafter_overheads import OpenPair, drafter_overheads
from edgedec.profiling.opened import Opened, opened
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.rounds import overheads
from edgedec.profiling.traces import TEMPERATURES, TraceRecorder
from edgedec.records.profile import Measured
from edgedec.records.trace import Trace
from edgedec.text.vocabulary_map import translate

_PROMPT_TOKENS = 512
_BUDGET_S = 20.0
_FEWEST, _MOST = 24, 128
_WITHOUT = "the traces are without the draft"
BY_TEXT = "the draft model drafts text in another vocabulary, which is not predicted"
# Room for drafted tokens after the end of the text.
_SLACK = 32


@dataclass(slots=True)
class PairRecording:
    """Recorded traces and overheads; see ``Profile``."""

    traces: tuple[Trace, ...] = ()
    overhead_s: float = 0.0
    draft_overhead_s: float = 0.0
    rounds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def record(
    sources: Mapping[str, Sequence[Source]],
    measured: Sequence[Measured],
    texts: Sequence[CalibrationPrompt],
) -> PairRecording:
    """Let the target continue every text, and record both models' choices on it.

    Args:
        sources: by role, the model in every format.
        measured: the places; the fastest usable ones are used.
        texts: prompts; of long ones only the end is used.

    Raises:
        ProfileError: none of the texts has a token.

    """
    found = PairRecording()
    target, draft = _quickest(measured, TARGET), _quickest(measured, DRAFT)
    if target is None:
        return found
    # Half of a short context is kept for the new text.
    half = min(one.max_context for one in (target, draft) if one is not None) // 2
    prompts = encoded(_source(sources, target), texts, min(_PROMPT_TOKENS, half))
    new_tokens = min(half, _affordable(target, draft, len(texts) * len(TEMPERATURES)))
    capacity = max(len(tokens) for _, tokens in prompts) + new_tokens + _SLACK
    draft, translation = _understood(sources, target, draft, found.notes)
    with ExitStack() as stack:
        first = stack.enter_context(_open(sources, target, capacity))
        second = None
        if draft is not None:
            try:
                second = stack.enter_context(_open(sources, draft, 2 * capacity))
            except EdgedecError as error:
                found.notes.append(f"{_WITHOUT}: {error}")
        info, drafts = first.model.info, None if second is None else second.session
        session = None if drafts is None else translated(drafts, translation)[0]
        recorder = TraceRecorder(first.session, session, info.vocab_size, info.eos_ids)
        found.traces = _traces(recorder, prompts, new_tokens, found.notes)
        found.overhead_s, found.draft_overhead_s = overheads(
            first.session, drafts, translation, prompts[0][1], info.vocab_size
        )
        both = target, None if drafts is None else draft
        pair = OpenPair(
            first.model, first.session, drafts, translation, both, found.draft_overhead_s
        )
        found.rounds = drafter_overheads(pair, found.traces)
    return found


def encoded(
    source: Source, texts: Sequence[CalibrationPrompt], most: int
) -> list[tuple[str, list[int]]]:
    """Return the last ``most`` tokens of each text, by name; texts without tokens are left out.

    Raises:
        ProfileError: none of them has a token.
        InputError: messages that the model's chat template cannot render.

    """
    tokenizer = source.read_tokenizer()
    every = [(text.name, text.encode(tokenizer)[-most:]) for text in texts]
    found = [(name, tokens) for name, tokens in every if tokens]
    if not found:
        raise ProfileError(
            "no calibration text has a token: expected one at least that is not empty: give"
            " others with --prompts"
        )
    return found


def _understood(
    sources: Mapping[str, Sequence[Source]],
    target: Measured,
    draft: Measured | None,
    notes: list[str],
) -> tuple[Measured | None, Translation | None]:
    """Return the draft and its translation; no draft, with a note, if the vocabularies differ."""
    if draft is None:
        return None, None
    try:
        translation = _translation(sources, target, draft)
    except EdgedecError as error:
        notes.append(f"{_WITHOUT}: {error}")
        return None, None
    if translation is not None and translation.level == "string":
        # Too few common tokens to fill a row of a trace.
        notes.append(f"{_WITHOUT}: {BY_TEXT}")
        return None, None
    return draft, translation


def _traces(
    recorder: TraceRecorder,
    prompts: Sequence[tuple[str, Sequence[int]]],
    new_tokens: int,
    notes: list[str],
) -> tuple[Trace, ...]:
    """Record every prompt at every temperature, or as many prompts as the time budget allows."""
    found: list[Trace] = []
    started = perf_counter()
    for number, (name, tokens) in enumerate(prompts):
        if number and perf_counter() - started > 1.5 * _BUDGET_S:
            notes.append(
                f"{len(prompts) - number} calibration texts, for the others took long enough"
            )
            break
        found += [recorder.record(name, tokens, t, new_tokens) for t in TEMPERATURES]
    return tuple(found)


def _quickest(measured: Sequence[Measured], role: str) -> Measured | None:
    """Return the usable place with the shortest pass, preferring those that reserve no cores."""
    usable = [one for one in measured if one.role == role and one.parity.usable and one.times]
    return min(usable, key=lambda m: (m.place.cores is not None, m.seconds(1, 0)), default=None)


def _source(sources: Mapping[str, Sequence[Source]], one: Measured) -> Source:
    return next(s for s in sources[one.role] if s.format == one.place.format)


def _open(
    sources: Mapping[str, Sequence[Source]], one: Measured, capacity: int
) -> AbstractContextManager[Opened]:
    batch_invariant = False if one.role == DRAFT else None
    return opened(_source(sources, one).path, one.place, capacity, batch_invariant)


def _translation(
    sources: Mapping[str, Sequence[Source]], target: Measured, draft: Measured
) -> Translation | None:
    """Return the translation between the vocabularies; None if they are identical."""
    found = translate(
        _source(sources, target).read_tokenizer(),
        _source(sources, draft).read_tokenizer(),
        target_columns=target.vocab_size,
        draft_columns=draft.vocab_size,
    )
    return None if found.untouched else found


def _affordable(target: Measured, draft: Measured | None, traces: int) -> int:
    """Return the tokens per trace that fit the budget: the target generates and rereads them."""
    a_token = 2 * target.seconds(1, _PROMPT_TOKENS)
    a_token += 0.0 if draft is None else draft.seconds(1, _PROMPT_TOKENS)
    return max(_FEWEST, min(_MOST, int(_BUDGET_S / traces / a_token)))
