"""The keys of a GGUF that describe the decoder, and the tensors of its rotary embedding.

The tokenizer's keys are in ``tokenizer``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf.architectures import Architecture, Value
from edgedec.export.tensors import FloatArray
from edgedec.gguf.sampling import KEYS
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

_MOST_K = (1 << 31) - 1
# The rotations that llama.cpp computes from metadata keys alone.
_BY_KEYS = ("default", "dynamic", "linear")


def model_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, Value]:
    """Return sizes, norms, rotation and the architecture's keys, prefixed with its name."""
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


def sampling_keys(generation: Mapping[str, Any]) -> dict[str, Value]:
    """Return the sampling that a checkpoint's ``generation_config.json`` asks for."""
    greedy = generation.get("do_sample") is False
    found: dict[str, Value] = {}
    for name, key in KEYS.items():
        value: Any = generation.get(name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not -1 <= value <= _MOST_K:  # false for NaN
            continue
        if not greedy or name == "repetition_penalty":
            found[key] = max(int(value), 0) if name == "top_k" else float(value)
    if generation.get("do_sample") is True:
        found.setdefault(KEYS["temperature"], 1.0)
    return found


def rope_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, float | int | str]:
    """Return the rotation's metadata, unprefixed; UnsupportedArchitecture if not supported."""
    rope = spec.rope
    if rope is None:
        return {}
    keys: dict[str, float | int | str] = {
        "rope.dimension_count": spec.rotary_dim,
        "rope.freq_base": float(rope.theta),
    }
    if _by_tensor(rope):
        if not architecture.rope_factors:
            raise UnsupportedArchitecture(
                f"llama.cpp has no {rope.kind} rotation of this kind for"
                f" {architecture.name}: export it to another format"
            )
        magnitude = rope.frequencies(spec.rotary_dim, spec.max_context)[1]
        return keys | ({"rope.scaling.attn_factor": magnitude} if magnitude != 1 else {})
    if rope.kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope.scaling["factor"]}
    if rope.kind == "yarn":
        keys |= _yarn_keys(rope)
    return keys


def rope_factors(spec: DecoderSpec, architecture: Architecture) -> dict[str, FloatArray]:
    """Return each pair's frequency divisor, ``[rotary_dim / 2]``, if keys cannot express it."""
    rope = spec.rope
    if rope is None or not _by_tensor(rope):
        return {}
    plain = rope.theta ** -(np.arange(0, spec.rotary_dim, 2, dtype=np.float64) / spec.rotary_dim)
    frequencies, _ = rope.frequencies(spec.rotary_dim, spec.max_context)
    factors = (plain / frequencies).astype(np.float32)
    return dict.fromkeys(architecture.rope_factors, factors)


def _by_tensor(rope: Rope) -> bool:
    if rope.kind == "yarn":
        # The ends of llama.cpp's ramp are whole channels, at these numbers of turns.
        turns = rope.scaling["beta_fast"], rope.scaling["beta_slow"]
        return turns != (32.0, 1.0) or not rope.scaling.get("truncate", 1.0)
    return rope.kind not in _BY_KEYS


def _yarn_keys(rope: Rope) -> dict[str, float | int | str]:
    scaling = rope.scaling
    factor = scaling["factor"]
    # llama.cpp applies this factor by itself; the key multiplies it.
    usual = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": int(scaling["original_max_position_embeddings"]),
        "rope.scaling.attn_factor": scaling["attention_factor"] / usual,
    }
