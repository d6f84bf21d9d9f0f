"""The keys of a GGUF that describe the decoder, and the tensors of its rotary embedding.

The rotation is here in both directions; other keys are so in ``sections``.

The tokenizer's keys are in ``tokenizer``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec._support.scaled_context import original_context
from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf.architectures import Architecture
from edgedec.export.gguf.file import ModelFile
from edgedec.export.gguf.sections import SIZED, SIZES, Value
from edgedec.export.tensors import FloatArray
from edgedec.gguf.sampling import KEYS, MOST
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

# The rotations that llama.cpp computes from metadata keys alone.
_BY_KEYS = ("default", "dynamic", "linear")
# Divisor of the frequency of a pair that does not rotate.
_STILL = 1e30


def model_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, Value]:
    """Return sizes, norms, rotation and the architecture's keys, prefixed with its name."""
    keys: dict[str, Value] = {**SIZES.keys(spec), **rope_keys(spec, architecture)}
    for section in architecture.sections:
        keys |= section.keys(spec)
    if spec.experts is not None:
        keys["expert_count"] = spec.experts.count
        keys["expert_used_count"] = spec.experts.used
        keys["expert_feed_forward_length"] = spec.ffn
        if spec.experts.shared:
            keys["expert_shared_feed_forward_length"] = spec.experts.shared
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
        if not number or not -1 <= value < MOST:  # false for NaN
            continue
        if not greedy or name == "repetition_penalty":
            found[key] = max(int(value), 0) if name == "top_k" else float(value)
    if generation.get("do_sample") is True:
        found.setdefault(KEYS["temperature"], 1.0)
    return found


def rope_keys(spec: DecoderSpec, architecture: Architecture) -> dict[str, float | int | str]:
    """Return the rotation's metadata, unprefixed; UnsupportedArchitecture if not supported."""
    spec, rope = _of_rope(spec)
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
        original = rope.scaling.get("original_max_position_embeddings")
        keys |= {"rope.scaling.original_context_length": int(original)} if original else {}
    if rope.kind == "yarn":
        keys |= _yarn_keys(rope)
    return keys


def rope_factors(spec: DecoderSpec, architecture: Architecture) -> dict[str, FloatArray]:
    """Return each pair's frequency divisor, ``[rotary_dim / 2]``, if keys cannot express it."""
    sized = bool(spec.sizes)
    spec, rope = _of_rope(spec)
    if rope is None or not (_by_tensor(rope) or sized):
        return {}
    plain = rope.theta ** -(np.arange(0, spec.rotary_dim, 2, dtype=np.float64) / spec.rotary_dim)
    frequencies, _ = rope.frequencies(spec.rotary_dim, spec.max_context)
    factors = np.full(len(plain), _STILL)
    np.divide(plain, frequencies, factors, where=frequencies > 0)
    factors = factors.astype(np.float32)
    return dict.fromkeys(architecture.rope_factors, factors)


def _of_rope(spec: DecoderSpec) -> tuple[DecoderSpec, Rope | None]:
    """Return the rotation of layers without a window, and a decoder with their sizes."""
    return (spec.at(spec.layers - 1), spec.ropes[-1]) if spec.sizes else (spec, spec.rope)


def _by_tensor(rope: Rope) -> bool:
    if rope.kind == "yarn":
        # The ends of llama.cpp's ramp are whole channels, at these numbers of turns.
        turns = rope.scaling["beta_fast"], rope.scaling["beta_slow"]
        return turns != (32.0, 1.0) or not rope.scaling.get("truncate", 1.0)
    return rope.kind not in _BY_KEYS


def _yarn_keys(rope: Rope) -> dict[str, float | int | str]:
    scaling = rope.scaling
    factor = scaling["factor"]
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": int(scaling["original_max_position_embeddings"]),
        "rope.scaling.attn_factor": scaling["attention_factor"] / _usual(factor),
    }


def _usual(factor: float) -> float:
    """Return the factor that llama.cpp applies by itself; the key multiplies it."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


# -- the way back ---------------------------------------------------------------------------------


def rope_of(file: ModelFile, head_dim: int, architecture: Architecture) -> tuple[int, Rope]:
    """Return how many channels of a head are rotated, and the rotation.

    Raises:
        UnsupportedArchitecture: it has no such form here.

    """
    dim = file.count("rope.dimension_count", head_dim)
    theta = file.above_zero("rope.freq_base", 10_000.0)
    kind = file.value("rope.scaling.type") or "linear"
    linear = file.number("rope.scale_linear", 1.0)
    factor = file.above_zero("rope.scaling.factor", linear)
    scaled = kind == "linear" and factor != 1
    if any(name in file.tensors for name in architecture.rope_factors):
        if kind == "yarn" or scaled:
            raise file.unknown(f"its rotation has both {kind} scaling and factors")
        return dim, _by_factors(file, theta, dim // 2, architecture)
    if kind == "yarn":
        return dim, _yarn_of(file, theta, factor)
    if kind not in ("none", "linear"):
        raise file.unknown(f"its rotation's scaling {one_line(str(kind))} is unknown here")
    if file.number("rope.scaling.attn_factor", 1.0) != 1:
        raise file.unknown("its rotation has a factor on sines and cosines")
    return dim, _linear_of(file, theta, factor) if scaled else Rope(theta)


def _by_factors(file: ModelFile, theta: float, pairs: int, architecture: Architecture) -> Rope:
    for name in architecture.rope_factors:
        if file.shape(name) != (pairs,):
            raise file.wrong(f"{name} is {list(file.shape(name))}, expected [{pairs}]")
    long, short = (file.read(architecture.rope_factors[at]).tolist() for at in (0, -1))
    if not all(0 < factor < math.inf for factor in (*long, *short)):
        raise file.wrong("a factor of its rotation is not above 0: it is damaged")
    if SIZED in architecture.sections:
        turning = long.count(1.0)
        if long != [1.0] * turning + [float(np.float32(_STILL))] * (pairs - turning):
            raise file.unknown("the factors of its rotation are not 1 and then 1e30")
        return Rope(theta, "proportional", {"partial_rotary_factor": turning / pairs})
    context = file.count("context_length")
    scaling = {
        "original_max_position_embeddings": float(
            file.count("rope.scaling.original_context_length", context)
        ),
        "attention_factor": file.above_zero("rope.scaling.attn_factor", 1.0),
    }
    return Rope(theta, "longrope", scaling, tuple(short), tuple(long))


def _linear_of(file: ModelFile, theta: float, factor: float) -> Rope:
    stated = file.count("rope.scaling.original_context_length", 0)
    original = original_context("linear", file.count("context_length"), factor, stated)
    scaling = {"factor": factor, "original_max_position_embeddings": float(original)}
    return Rope(theta, "linear", scaling)


def _yarn_of(file: ModelFile, theta: float, factor: float) -> Rope:
    if theta <= 1:
        raise file.wrong(f"its rotation's base is {theta}, expected more than 1")
    if file.number("rope.scaling.yarn_log_multiplier", 0.0):
        raise file.unknown("its rotation has a logarithmic factor")
    original = file.count("rope.scaling.original_context_length", file.count("context_length"))
    if not original:
        raise file.wrong("the context it was first trained for is 0: it is damaged")
    magnitude = file.number("rope.scaling.attn_factor", 1.0) * _usual(factor)
    for key, meant in (("yarn_ext_factor", 1.0), ("yarn_attn_factor", magnitude)):
        if not math.isclose(file.number(f"rope.scaling.{key}", meant), meant, rel_tol=1e-6):
            raise file.unknown(f"its rotation's {key} is not {meant:g}, as llama.cpp computes it")
    scaling = {
        "factor": factor,
        "original_max_position_embeddings": float(original),
        "beta_fast": file.above_zero("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": file.above_zero("rope.scaling.yarn_beta_slow", 1.0),
        "attention_factor": magnitude,
    }
    return Rope(theta, "yarn", scaling)
