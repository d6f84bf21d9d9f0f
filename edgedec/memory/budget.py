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
        target, draft: facts of the models; both hold the same tokens.
        max_context: tokens the user asked for; None is the model's own limit.
        kv_memory: bytes for both caches together; None is no limit.

    Raises:
        MemoryBudgetError: the limit does not hold even a short context, or not the
            ``max_context`` that was asked for.
    """
    per_token = target.kv_bytes_per_token + (draft.kv_bytes_per_token if draft else 0)
    if max_context is not None and not 1 <= max_context <= target.max_context:
        raise MemoryBudgetError(
            f"--max-context {max_context}: expected 1 to {target.max_context}, "
            f"what {target.name} was trained for"
        )
    capacity = max_context or target.max_context
    if kv_memory is None:
        return CachePlan(capacity, capacity * per_token)
    fits = kv_memory // per_token
    if fits < _SMALLEST_CONTEXT:
        raise MemoryBudgetError(
            f"--kv-memory {kv_memory} bytes holds {fits} tokens of {per_token} bytes: "
            f"give at least {_SMALLEST_CONTEXT * per_token}"
        )
    if max_context is not None and fits < max_context:
        raise MemoryBudgetError(
            f"KV of {max_context} tokens needs {_mb(max_context * per_token)} MB, "
            f"budget {_mb(kv_memory)} MB: try --max-context {fits}"
        )
    capacity = min(capacity, fits)
    return CachePlan(capacity, capacity * per_token)


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f}"
