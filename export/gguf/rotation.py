"""The rotary embedding of a decoder in the terms llama.cpp has for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

if TYPE_CHECKING:
    from edgedec.export.gguf.architectures import Architecture

# The rotations that llama.cpp computes from metadata keys alone.
_BY_KEYS = ("default", "dynamic", "linear")


def rope_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, float | int | str]:
    """Metadata of the rotation, without the architecture's name in front.

    Raises:
        UnsupportedArchitecture: llama.cpp cannot turn it that way.

    """
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
    """Return each pair's frequency divisor, ``[rotary_dim / 2]``, where keys cannot say it."""
    rope = spec.rope
    if rope is None or not _by_tensor(rope):
        return {}
    plain = rope.theta ** -(np.arange(0, spec.rotary_dim, 2, dtype=np.float64) / spec.rotary_dim)
    frequencies, _ = rope.frequencies(spec.rotary_dim, spec.max_context)
    factors = (plain / frequencies).astype(np.float32)
    return dict.fromkeys(architecture.rope_factors, factors)


def _by_tensor(rope: Rope) -> bool:
    if rope.kind == "yarn":
        # llama.cpp's ramp has whole channels for its ends, and these numbers of turns there.
        turns = rope.scaling["beta_fast"], rope.scaling["beta_slow"]
        return turns != (32.0, 1.0) or not rope.scaling.get("truncate", 1.0)
    return rope.kind not in _BY_KEYS


def _yarn_keys(rope: Rope) -> dict[str, float | int | str]:
    scaling = rope.scaling
    factor = scaling["factor"]
    # llama.cpp warms attention by itself; what is given multiplies that.
    usual = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": int(scaling["original_max_position_embeddings"]),
        "rope.scaling.attn_factor": scaling["attention_factor"] / usual,
    }
