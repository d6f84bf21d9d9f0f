"""Limits the key/value caches of target and draft to a number of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec._support.amounts import megabytes
from edgedec.decoding.session import ModelInfo
from edgedec.errors import MemoryBudgetError

_SMALLEST_CONTEXT = 16
# Limits of a context, and advice if a prompt exceeds one.
TRAINED, MAX_CONTEXT, KV_MEMORY, MEMORY = "trained", "max_context", "kv_memory", "memory"
_HELP = {
    TRAINED: "shorten it, the model was not trained for more",
    MAX_CONTEXT: "shorten it or raise --max-context",
    KV_MEMORY: "shorten it or raise --kv-memory",
    MEMORY: "shorten it or give more --memory",
}


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The capacity of the key/value caches.

    Attributes:
        capacity: tokens per session.
        kv_bytes: bytes of all sessions together, when full.
        bound: the limit on the capacity: ``TRAINED``, ``MAX_CONTEXT`` or ``KV_MEMORY``.

    """

    capacity: int
    kv_bytes: int
    bound: str = TRAINED


def bound_by(bound: str) -> str:
    """Return advice for a prompt that exceeds this limit."""
    return _HELP[bound]


def check_context(max_context: int | None, trained: int, name: str) -> None:
    """Raise MemoryBudgetError for a context that the model was not trained for."""
    if max_context is not None and not 1 <= max_context <= trained:
        raise MemoryBudgetError(
            f"--max-context {max_context}: expected 1 to {trained}, the longest context of {name}"
        )


def plan_caches(
    target: ModelInfo, draft: ModelInfo | None, *, max_context: int | None, kv_memory: int | None
) -> CachePlan:
    """Return the largest context that the model, the user and the byte limit allow.

    Args:
        target, draft: facts of the models; both hold the same tokens, up to the draft's own
            context.
        max_context: tokens the user asked for; None is the model's own limit.
        kv_memory: bytes for both caches together; None sets no limit.

    Raises:
        MemoryBudgetError: a short context, or the requested ``max_context``, exceeds the limit.

    """
    check_context(max_context, target.max_context, target.name)
    capacity = max_context or target.max_context
    kv_bytes = _bytes_of(capacity, target, draft)
    if kv_memory is None or kv_bytes <= kv_memory:
        bound = TRAINED if capacity == target.max_context else MAX_CONTEXT
        return CachePlan(capacity, kv_bytes, bound)
    fits = _fitting(kv_memory, target, draft)
    if fits < min(_SMALLEST_CONTEXT, capacity):
        least = min(_SMALLEST_CONTEXT, capacity)
        raise MemoryBudgetError(
            f"--kv-memory {kv_memory} bytes holds {fits} tokens: "
            f"give at least {_bytes_of(least, target, draft)} bytes, for {least} tokens"
        )
    if max_context is not None:
        raise MemoryBudgetError(
            f"KV of {max_context} tokens needs {megabytes(kv_bytes)} MB, "
            f"budget {megabytes(kv_memory)} MB: try --max-context {fits}"
        )
    return CachePlan(fits, _bytes_of(fits, target, draft), KV_MEMORY)


def _bytes_of(tokens: int, target: ModelInfo, draft: ModelInfo | None) -> int:
    """Return the bytes of both caches for this many tokens."""
    drafted = min(tokens, draft.max_context) * draft.kv_bytes_per_token if draft else 0
    return tokens * target.kv_bytes_per_token + drafted


def _fitting(kv_memory: int, target: ModelInfo, draft: ModelInfo | None) -> int:
    """Return how many tokens fit in caches of ``kv_memory`` bytes."""
    both = target.kv_bytes_per_token + (draft.kv_bytes_per_token if draft else 0)
    fits = kv_memory // both
    if draft is None or fits <= draft.max_context:
        return fits
    # Beyond the draft's context only the target's cache grows.
    return (kv_memory - draft.max_context * draft.kv_bytes_per_token) // target.kv_bytes_per_token
