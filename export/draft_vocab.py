"""Chooses the tokens that a draft can draft, so that its head has fewer rows to multiply.

The head is most of a small draft's cost, and most of its rows are of tokens that hardly ever occur
(FR-Spec, 2502.14856; VocabTrim, 2506.22694). What is left out is only never drafted: the target
draws every token of the text, so the text stays what it is.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgedec.errors import InputError
from edgedec.export.describing import GivenModel
from edgedec.export.formats.onnx import onnx_options
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.job import ExportJob
from edgedec.export.options import FULL
from edgedec.export.target_texts import TargetTexts
from edgedec.export.weighed import head_bits
from edgedec.text.tokenizer import Tokenizer

Texts = Sequence[Sequence[int]]

# The format whose graphs have a head apart from the embedding.
FORMAT = "onnx"
# The rule: a head of so many numbers that is more than this share of what a pass reads keeps this
# share of its tokens, which was fastest here (docs/measured/drafts.md), and at most as many as
# FR-Spec's.
_LEAST_NUMBERS, _LARGE, _KEPT, _MOST_KEPT = 1 << 22, 1 / 3, 0.75, 32768


@dataclass(frozen=True, slots=True)
class Ranking:
    """A draft's tokens in the order in which a trimmed head keeps them.

    Attributes:
        always: ends of texts, the chat template's tokens, bytes and digits.
        others: by their counts in the target's texts, then in the order of the tokenizer's merges.

    """

    always: tuple[int, ...]
    others: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.always) + len(self.others)

    @property
    def order(self) -> tuple[int, ...]:
        """All ids, those that are kept first at the beginning."""
        return (*self.always, *self.others)

    def first(self, count: int) -> tuple[int, ...]:
        """Return the ids of the first tokens, ascending."""
        return tuple(sorted(self.order[:count]))


def ranking(sources: Sequence[GivenModel], source: GivenModel, texts: Texts = ()) -> Ranking:
    """Rank a draft's tokens.

    Args:
        sources: target and draft.
        source: the draft.
        texts: what the target writes, in the draft's tokens.

    """
    checkpoint, content, target = source.checkpoint, source.content, sources[0]
    ends = target.checkpoint.eos_ids if source.tokenizer == target.tokenizer else ()
    tokens, used = content.tokens(), checkpoint.spec.vocab_used
    ids = [token for token in tokens if token < used]
    always = _always(source, tokens) | set(ends) | set(checkpoint.eos_ids)
    counts = Counter(token for text in texts for token in text)
    rank = _merge_order(source)
    late = len(rank)
    others = [token for token in ids if token not in always]
    others.sort(key=lambda token: (-counts[token], rank.get(token, late), token))
    return Ranking(tuple(sorted(always.intersection(ids))), tuple(others))


def _always(source: GivenModel, tokens: dict[int, str]) -> set[int]:
    """Return the tokens of the chat template, of single bytes, and of single digits."""
    tokenizer = Tokenizer.load(source.checkpoint.texts)
    template = tokenizer.chat_template
    shown = "" if template is None else template.source
    names = {token: tokens.get(token) for token in tokenizer.special_ids}
    found = {token for token, name in names.items() if name and name in shown}
    for token, data in enumerate(tokenizer.token_bytes(tokenizer.vocab_size)):
        if data and (len(data) == 1 or (len(data.strip()) == 1 and data.strip().isdigit())):
            found.add(token)
    return found


def _merge_order(source: GivenModel) -> dict[int, int]:
    """Return the place of each token among the merges; frequent ones were merged first."""
    vocab, merges = source.content.model.get("vocab"), source.content.model.get("merges") or []
    if not isinstance(vocab, dict):
        return {}
    order: dict[int, int] = {}
    for place, (first, second) in enumerate(merges):
        if (token := vocab.get(first + second)) is not None:
            order.setdefault(token, place)
    return order


def trim(
    sources: Sequence[GivenModel], jobs: Mapping[str, list[ExportJob]], texts: TargetTexts
) -> None:
    """Set the tokens that the head of a draft in ONNX keeps: as many as the user says, or the rule.

    Raises:
        InputError: there are fewer tokens, or more of them are always kept.

    """
    for source in sources[1:]:
        for index, job in enumerate(jobs[source.role]):
            count = job.options.draft_vocab
            if count is None and texts.made and source.tokenizer == sources[0].tokenizer:
                spec = job.spec
                ends = spec.vocab_size * spec.hidden * (1 if spec.tied else 2)
                count = by_rule(job, spec.parameters - ends)
            if job.format != FORMAT or count in (None, FULL):
                continue
            ranks, count = ranking(sources, source), int(count)
            if job.options.draft_vocab is None and count < len(ranks.always):
                continue
            _check(count, ranks, source)  # before texts are written
            written = texts.of(source) if texts.allowed else ()
            ranks = ranking(sources, source, written)
            note = _note(ranks, count, written)
            jobs[source.role][index] = dataclasses.replace(
                job, drafted=ranks.first(count), notes=(*job.notes, note)
            )


def by_rule(job: ExportJob, others: int) -> int | None:
    """Return how many tokens a draft's head keeps by default; None is all.

    Args:
        job: of the model whose head it is.
        others: number of weights that a pass of the draft reads besides the head's.

    """
    spec = job.spec
    head = spec.vocab_used * spec.hidden
    if head < _LEAST_NUMBERS or job.options.calibration_text is not None:
        return None
    form = onnx_options(job).form
    bits = head_bits(spec, form) / form.bits if job.texts else 1.0  # of one of another matrix
    if bits * head <= _LARGE * (bits * head + others):
        return None
    return min(_MOST_KEPT, int(_KEPT * spec.vocab_used))


def of_head(
    head: HeadCheckpoint, target: GivenModel, jobs: Sequence[ExportJob], texts: TargetTexts
) -> HeadCheckpoint:
    """Return a head that drafts as many tokens as the user or the rule says.

    One that has an LM head of its own is left as it is.

    Args:
        head: the head.
        target: its target.
        jobs: of the target.
        texts: what it writes.

    Raises:
        InputError: there are fewer tokens, or more of them are always kept.

    """
    job = next(job for job in jobs if job.format == FORMAT)
    stated = job.options.draft_vocab
    count = by_rule(job, head.spec.parameters) if stated is None and texts.made else stated
    if head.spec.own_output or count in (None, FULL):
        return head
    ranks, count = ranking([target], target), int(count)
    if stated is None and count < len(ranks.always):
        return head
    _check(count, ranks, target)  # before texts are written
    written = texts.of(target) if texts.allowed else ()
    ranks = ranking([target], target, written)
    return head.drafting(ranks.first(count), _note(ranks, count, written))


def _check(count: int, ranks: Ranking, source: GivenModel) -> None:
    least, most = len(ranks.always), len(ranks) - 1
    if not least <= count <= most:
        raise InputError(
            f"--draft-vocab {count}: expected {least} (what is always kept) to {most} of the"
            f" {len(ranks)} tokens of {source.checkpoint.name}, or {FULL} for all"
        )


def _note(ranks: Ranking, count: int, texts: Texts) -> str:
    counts = Counter(token for text in texts for token in text)
    why = "bytes and the first ones of its merges"
    if counts:
        share = sum(counts[token] for token in ranks.first(count)) / counts.total()
        why = f"{share:.1%} of what the target wrote"
    return f"drafts {count} of its {len(ranks)} tokens, {why}"
