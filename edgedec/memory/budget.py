"""A byte limit on the key/value caches of target and draft."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.decoding.session import ModelInfo
from edgedec.errors import MemoryBudgetError

_SMALLEST_CONTEXT = 16


@dataclass(frozen=True, slots=True)
class CachePlan:
    """How many tokens the caches may hold.

    Attributes:
        capacity: tokens per session.
        kv_bytes: of all sessions together, when full.
    """

    capacity: int
    kv_bytes: int


def plan_caches(
    target: ModelInfo, draft: ModelInfo | None, *, max_context: int | None, kv_memory: int | None
) -> CachePlan:
    """The largest context that the model, the user and the byte limit allow.

    Args:
        target, draft: facts of the models; both hold the same tokens, as far as the draft's
            own context reaches.
        max_context: tokens the user asked for; None is the model's own limit.
        kv_memory: bytes for both caches together; None is no limit.

    Raises:
        MemoryBudgetError: the limit does not hold even a short context, or not the
            ``max_context`` that was asked for.
    """
    if max_context is not None and not 1 <= max_context <= target.max_context:
        raise MemoryBudgetError(
            f"--max-context {max_context}: expected 1 to {target.max_context}, "
            f"what {target.name} was trained for"
        )
    capacity = max_context or target.max_context
    kv_bytes = _bytes_of(capacity, target, draft)
    if kv_memory is None or kv_bytes <= kv_memory:
        return CachePlan(capacity, kv_bytes)
    fits = _fitting(kv_memory, target, draft)
    if fits < min(_SMALLEST_CONTEXT, capacity):
        least = min(_SMALLEST_CONTEXT, capacity)
        raise MemoryBudgetError(
            f"--kv-memory {kv_memory} bytes holds {fits} tokens: "
            f"give at least {_bytes_of(least, target, draft)} bytes, for {least} tokens"
        )
    if max_context is not None:
        raise MemoryBudgetError(
            f"KV of {max_context} tokens needs {_mb(kv_bytes)} MB, "
            f"budget {_mb(kv_memory)} MB: try --max-context {fits}"
        )
    return CachePlan(fits, _bytes_of(fits, target, draft))


def _bytes_of(tokens: int, target: ModelInfo, draft: ModelInfo | None) -> int:
    """Of both caches when a text has so many tokens."""
    drafted = min(tokens, draft.max_context) * draft.kv_bytes_per_token if draft else 0
    return tokens * target.kv_bytes_per_token + drafted


def _fitting(kv_memory: int, target: ModelInfo, draft: ModelInfo | None) -> int:
    """The most tokens whose caches take no more than so many bytes."""
    both = target.kv_bytes_per_token + (draft.kv_bytes_per_token if draft else 0)
    fits = kv_memory // both
    if draft is None or fits <= draft.max_context:
        return fits
    # Beyond the draft's context the target's cache alone grows.
    return (kv_memory - draft.max_context * draft.kv_bytes_per_token) // target.kv_bytes_per_token


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f}"
