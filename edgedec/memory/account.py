"""The memory model: the bytes that decoding uses, part by part.

SpecMemo's formula (2506.01206) for a target with a cache of C tokens and n drafted tokens a round::

    M(n, C) = W_t + W_d + KV_t (C + n + 1) + KV_d (C + n) + 4 V (n + 1 - r) + 4 (n + 1) (C + n + 1)
              + S_t P + S_d C + drafter + sampler + text + tokenizer + process

W is a model's weights and its runtime's own memory, measured after it prefilled a chunk and
scored r rows, without the cache that this filled; KV is bytes per token, V the target's vocabulary.
The fifth and sixth terms are rows of logits beyond those r, and a tree's attention bias. S is the
working memory of a prefill chunk per cached token, P the prompt's length. W also includes rows of
mapped embeddings that the text may touch, at most a page per token, and those of tables that only
lookups read. Planning and loading both use
this formula, and nothing else estimates memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from edgedec.decoding import drafting
from edgedec.decoding.noise import noise_bytes
from edgedec.decoding.sampling.rows import sampler_bytes
from edgedec.decoding.session_base import PREFILL_CHUNK

# Most tokens that a policy drafts if it decides the length each round.
AUTO_LENGTH = 16
# Bytes of a logit, and of an entry of an attention bias.
FLOAT_BYTES = 4
_PAGE = 4096
# Measured: ids, text and sources of a token in the history, the request and the stream's events.
_TEXT_BYTES = 160


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Memory that a model takes, in bytes.

    Attributes:
        held: W of the formula.
        kv_bytes_per_token, max_context, vocab_size, scratch_bytes_per_token: as ``ModelInfo``.
        rows: rows of logits that ``held`` includes.
        unread: bytes of its mapped files that are not in memory yet.
        scratch: working memory of a prefill chunk that ``held`` includes; the logits of a pass
            share it.
        own: bytes of a session besides its cache, of which ``held`` includes one.
        least: tokens for which a session allocates its cache, however short its text is.
        scratch_each: whether every session has its working memory, rather than all of them one.
        lookup_bytes: as ``ModelInfo``.

    """

    held: int
    kv_bytes_per_token: int
    max_context: int
    vocab_size: int
    scratch_bytes_per_token: int = 0
    rows: int = 0
    unread: int = 0
    scratch: int = 0
    own: int = 0
    least: int = 0
    scratch_each: bool = False
    lookup_bytes: int = 0

    def cache(self, tokens: int) -> int:
        """Return the bytes of a session's cache for this many tokens."""
        return max(tokens, self.least) * self.kv_bytes_per_token

    def workspace(self, tokens: int) -> int:
        """Return the working memory of prefilling this many tokens, beyond ``held``, in bytes."""
        return max(0, self.scratch_bytes_per_token * min(tokens, self.max_context) - self.scratch)

    def weights(self, context: int) -> int:
        """Return its memory without a cache after a context of this length, in bytes."""
        rows = self.lookup_bytes * min(context, self.vocab_size)
        return self.held + min(self.unread, _PAGE * context) + rows

    @property
    def without_cache(self) -> ModelCosts:
        """The costs of the model while its cache is empty and it computes nothing."""
        return replace(self, kv_bytes_per_token=0, scratch_bytes_per_token=0)


@dataclass(frozen=True, slots=True)
class Shape:
    """The decoding configuration whose memory is estimated.

    Attributes:
        context: tokens of prompt and output together, of the longest text.
        drafted: most drafted tokens of a round.
        drafters: names of the drafters whose tables are kept.
        engines: number of texts at the same time, each with tables of its own.
        prompt: tokens of the context that are prefilled in chunks; None is all.
        sampled: whether tokens are drawn with noise, which greedy decoding does not need.
        beside: contexts of the other texts that are decoded by turns with it.

    """

    context: int
    drafted: int
    drafters: tuple[str, ...]
    sampled: bool = True
    prompt: int | None = None
    beside: tuple[int, ...] = ()
    engines: int = 1


@dataclass(frozen=True, slots=True)
class Account:
    """Memory of a decoding configuration, in bytes, part by part.

    Attributes:
        target, draft: weights and the runtime's own memory; a head counts as the draft, with the
            states that wait for it.
        sessions: what the sessions of further texts take besides their caches.
        target_kv, draft_kv: caches of all texts when their contexts are full.
        rows: logits of one round.
        bias: attention bias of one round.
        workspace: working memory of a prefill chunk, with a full context.
        drafter: tables of a drafter without a model.
        sampler: noise, and scores of the rows of a round.
        text: the tokens themselves.
        tokenizer: vocabulary and merges.
        process: the interpreter with the runtimes, which counts towards a limit as well.

    """

    target: int
    draft: int
    sessions: int
    target_kv: int
    draft_kv: int
    rows: int
    bias: int
    workspace: int
    drafter: int
    sampler: int
    text: int
    tokenizer: int
    process: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def account(
    target: ModelCosts,
    draft: ModelCosts | None,
    shape: Shape,
    *,
    process: int,
    tokenizer: int = 0,
) -> Account:
    """Return the memory of decoding, part by part.

    Args:
        target, draft: the models; the draft's ``held`` is 0 if both roles are one loaded model.
        process: bytes of the interpreter with the runtimes.
        tokenizer: bytes of the vocabulary, if ``process`` does not include it.

    """
    context, rows = shape.context, shape.drafted + 1
    texts, columns = (context, *shape.beside), context + rows
    workspace = target.workspace(_prefilled(shape)) * (len(texts) if target.scratch_each else 1)
    sessions, drafted_kv = len(shape.beside) * target.own, 0
    if draft is not None:
        # A draft model computes nothing beyond its own context.
        seen = [min(one + shape.drafted, draft.max_context) for one in texts]
        drafted_kv = sum(map(draft.cache, seen))
        # After a pause it prefills the tokens decoded meanwhile, in chunks as large as a prompt's.
        workspace += draft.workspace(context) * (len(texts) if draft.scratch_each else 1)
    return Account(
        target=target.weights(context),
        draft=0 if draft is None else draft.weights(context),
        sessions=sessions,
        target_kv=sum(target.cache(one + rows) for one in texts),
        draft_kv=drafted_kv,
        rows=max(0, rows - target.rows) * FLOAT_BYTES * target.vocab_size,
        bias=FLOAT_BYTES * rows * columns,
        workspace=workspace,
        drafter=remembered(shape.drafters, target.vocab_size, context, shape.engines),
        sampler=_sampler(target.vocab_size, rows, len(texts)) if shape.sampled else 0,
        text=_TEXT_BYTES * sum(texts),
        tokenizer=tokenizer,
        process=process,
    )


def _sampler(vocab_size: int, rows: int, texts: int) -> int:
    """Return the memory of sampling by turns, each text with noise of its own."""
    return sampler_bytes(vocab_size, rows) + (texts - 1) * noise_bytes(vocab_size)


def _prefilled(shape: Shape) -> int:
    """Return the cached tokens that a chunk, or as many rows of rounds, attends to."""
    rounds = shape.context * (shape.drafted + 1) // PREFILL_CHUNK
    return shape.context if shape.prompt is None else max(min(shape.prompt, shape.context), rounds)


def remembered(drafters: Sequence[str], vocab_size: int, context: int, engines: int = 1) -> int:
    """Return the memory of the tables of drafters and their parts, outside models, in bytes."""
    infos = [drafting.info(name) for name in drafting.with_parts(drafters)]
    tables = sum(vocab_size * one.vocab_bytes + context * one.context_bytes for one in infos)
    return engines * tables + sum(one.shared_bytes for one in infos)
