"""What a plan takes: what was measured of its models, put into the account of ``memory.account``.

A model's weights are its process's measured growth less the cache that was filled, or the size of
the stored weights if none was measured.
"""

from __future__ import annotations

from dataclasses import replace

from edgedec.decoding.drafting import DRAFT_CONTEXT
from edgedec.memory.account import AUTO_LENGTH, Account, ModelCosts, Shape, account
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured, Profile

# Measured: a process that plans (and measures) before it decodes takes 21 MB more than one that
# only decodes, since used pages are rarely given back.
_PLANNING_BYTES = 24_000_000
# Measured: a byte-pair tokenizer with 100,000 entries takes 44 MB.
_TOKEN_BYTES = 440


def drafted_at_most(plan: Plan) -> int:
    """Return the most tokens that a round drafts."""
    return AUTO_LENGTH if plan.draft_length is None else plan.draft_length


def footprint(profile: Profile, plan: Plan, context: int) -> Account:
    """Return the memory of a plan whose texts have at most ``context`` tokens.

    Raises:
        ProfileError: the plan uses a place that was not measured.

    """
    target = profile.at("target", plan.target)
    draft = None if plan.draft is None else profile.at("draft", plan.draft)
    shared = draft is not None and _same_weights(target, draft)
    return account(
        _costs(target, _held(target)),
        None if draft is None else _of_draft(draft, 0 if shared else _held(draft)),
        Shape(context, drafted_at_most(plan), (plan.drafter,)),
        process=_process(target, draft),
        tokenizer=_TOKEN_BYTES * target.vocab_size,
    )


def _costs(measured: Measured, held: int) -> ModelCosts:
    return ModelCosts(
        held,
        measured.kv_bytes_per_token,
        measured.max_context,
        measured.vocab_size,
        measured.scratch_bytes_per_token,
        rows=max((max(times.widths) for times in measured.times), default=0),
    )


def _of_draft(measured: Measured, held: int) -> ModelCosts:
    costs = _costs(measured, held)
    return replace(costs, max_context=min(costs.max_context, DRAFT_CONTEXT))


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
    held = measured.place.weight_memory
    return max(without_cache, measured.weight_bytes if held is None else held)


def _same_weights(target: Measured, draft: Measured) -> bool:
    """Return whether both roles use one model, which is then loaded once."""
    return target.name == draft.name and target.place == draft.place
