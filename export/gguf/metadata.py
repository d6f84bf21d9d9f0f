"""The keys of a GGUF that describe the decoder; the tokenizer's are elsewhere."""

from __future__ import annotations

from edgedec.export.gguf.architectures import Architecture, Value
from edgedec.export.gguf.rotation import rope_keys
from edgedec.models.decoder import DecoderSpec


def model_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, Value]:
    """Sizes, norms, rotation and what the architecture adds, with its name in front."""
    epsilon = "layer_norm_epsilon" if spec.norm.kind == "layer" else "layer_norm_rms_epsilon"
    keys: dict[str, Value] = {
        "vocab_size": spec.vocab_size,
        "context_length": spec.max_context,
        "embedding_length": spec.hidden,
        "block_count": spec.layers,
        "feed_forward_length": spec.ffn,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        f"attention.{epsilon}": float(spec.norm.epsilon),
        **rope_keys(spec, architecture),
        **architecture.keys(spec),
    }
    if spec.experts is not None:
        keys["expert_count"] = spec.experts.count
        keys["expert_used_count"] = spec.experts.used
        keys["expert_feed_forward_length"] = spec.ffn
    return {f"{architecture.name}.{key}": value for key, value in keys.items()}


def general_keys(name: str, licence: str | None) -> dict[str, Value]:
    """Return the general keys that file listings show."""
    keys: dict[str, Value] = {"general.type": "model", "general.name": name}
    return keys | ({"general.license": licence} if licence else {})
