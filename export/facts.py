"""The facts of a model that graphs and programs contain for their runtimes."""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.models.decoder import DecoderSpec

TOP_K = 8


def model_facts(
    spec: DecoderSpec, name: str, eos_ids: Sequence[int], weights: str, max_context: int
) -> dict[str, object]:
    """Return the facts that every form contains about its model."""
    return {
        "name": name,
        "layers": spec.layers,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "vocab_used": spec.vocab_used,
        "max_context": max_context,
        "eos_ids": list(eos_ids),
        "weights": weights,
        "top_k": min(TOP_K, spec.vocab_size),
    }
