"""Bytes that a plan takes, by the parts of SpecMemo's account (2506.01206).

For a target with a cache of C tokens and n drafted tokens per round::

    M(n, C) = W_t + W_d + KV_t (C + n + 1) + KV_d (C + n) + (n + 1) 4 V + 4 (n + 1) (C + n + 1) +
              workspace + tokenizer + process

W is the process's measured growth less the cache it had filled, or the size of the stored weights
if none was measured; KV is bytes per token; the fifth term is the rows of logits; the product of
rows and columns is a tree's attention bias; the workspace is the bias of a prompt chunk, the widest
pass there is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from edgedec.decoding import drafting
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured, Profile

# The policy that decides each round drafts at most this many tokens.
AUTO_LENGTH = 16
_FLOAT = 4
_PREFILL_CHUNK = 128
# Measured: a process that plans (and measures) before it decodes takes 21 MB more than one that
# only decodes, since used pages are rarely given back.
_PLANNING_BYTES = 24_000_000
# Measured: a byte-pair tokenizer with 100,000 entries takes 44 MB.
_TOKEN_BYTES = 440


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a plan, in bytes, part by part.

    Attributes:
        target, draft: weights and the runtime's own memory.
        target_kv, draft_kv: caches when the context is full.
        rows: logits of one round.
        bias: attention bias of one round.
        workspace: for reading the prompt.
        drafter: tables of a drafter without a model.
        tokenizer: vocabulary and merges.
        process: the interpreter with the runtimes, which count towards the limit too.

    """

    target: int
    draft: int
    target_kv: int
    draft_kv: int
    rows: int
    bias: int
    workspace: int
    drafter: int
    tokenizer: int
    process: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


def drafted_at_most(plan: Plan) -> int:
    """Return the most tokens that a round drafts."""
    return AUTO_LENGTH if plan.draft_length is None else plan.draft_length


def footprint(profile: Profile, plan: Plan, context: int) -> Footprint:
    """Return the memory of a plan whose texts have at most ``context`` tokens.

    Raises:
        ProfileError: the plan uses a place that was not measured.

    """
    target = profile.at("target", plan.target)
    draft = None if plan.draft is None else profile.at("draft", plan.draft)
    return _footprint(target, draft, plan.drafter, drafted_at_most(plan), context)


def _footprint(
    target: Measured, draft: Measured | None, drafter: str, drafted: int, context: int
) -> Footprint:
    rows = drafted + 1
    columns = context + rows
    drafted_kv = 0
    if draft is not None:
        # A draft model drafts nothing beyond its own context.
        drafted_kv = min(context + drafted, draft.max_context) * draft.kv_bytes_per_token
    return Footprint(
        target=_held(target),
        draft=0 if draft is None or _same_weights(target, draft) else _held(draft),
        target_kv=columns * target.kv_bytes_per_token,
        draft_kv=drafted_kv,
        rows=rows * _FLOAT * target.vocab_size,
        bias=_FLOAT * rows * columns,
        workspace=_FLOAT * _PREFILL_CHUNK * (context + _PREFILL_CHUNK),
        drafter=_remembered(drafter, target.vocab_size, context),
        tokenizer=_TOKEN_BYTES * target.vocab_size,
        process=_process(target, draft),
    )


def _process(target: Measured, draft: Measured | None) -> int:
    if draft is None:
        return target.process_bytes + _PLANNING_BYTES
    both = target.process_bytes, draft.process_bytes
    # Both contain the interpreter, whose share was not measured, so it counts twice.
    one = max(both) if target.place.format == draft.place.format else sum(both)
    return one + _PLANNING_BYTES


def _held(measured: Measured) -> int:
    filled = max((times.context for times in measured.times), default=0)
    without_cache = measured.rss_bytes - filled * measured.kv_bytes_per_token
    # Pages of a mapped file may have been dropped: at least the weights are needed.
    return max(without_cache, measured.weight_bytes)


def _same_weights(target: Measured, draft: Measured) -> bool:
    """Return whether both roles use one model, which is then loaded once."""
    return target.name == draft.name and target.place == draft.place


def _remembered(drafter: str, vocab_size: int, context: int) -> int:
    info = drafting.info(drafter)
    own = vocab_size * info.vocab_bytes + context * info.context_bytes
    return own + sum(_remembered(part, vocab_size, context) for part in info.parts)
