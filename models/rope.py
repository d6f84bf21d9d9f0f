"""Rotary position embedding (RoFormer, 2104.09864) and the ways it is stretched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.errors import CheckpointError, UnsupportedArchitecture

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of halves (channel i turns with channel i + head_dim / 2).

    Attributes:
        theta: the base of the frequencies.
        kind: ``default``, ``linear``, ``dynamic``, ``llama3`` or ``yarn``.
        scaling: the numbers of that kind, as config.json names them.

    """

    theta: float
    kind: str = "default"
    scaling: Mapping[str, float] = field(default_factory=dict)

    def tables(self, head_dim: int, max_context: int) -> tuple[FloatArray, FloatArray]:
        """Cosines and sines, each ``[max_context, head_dim / 2]`` float32."""
        frequencies, magnitude = self.frequencies(head_dim)
        angles = np.outer(np.arange(max_context, dtype=np.float64), frequencies)
        return (
            (np.cos(angles) * magnitude).astype(np.float32),
            (np.sin(angles) * magnitude).astype(np.float32),
        )

    def frequencies(self, head_dim: int) -> tuple[DoubleArray, float]:
        """Radians per position, ``[head_dim / 2]``, and the factor on cosines and sines."""
        exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
        plain: DoubleArray = self.theta**-exponents
        return _KINDS[self.kind](self, plain)


def _default(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    # "dynamic" too: its base grows only beyond the trained context, where no export goes.
    return plain, 1.0


def _linear(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    """Position interpolation (2306.15595)."""
    return plain / rope.scaling["factor"], 1.0


def _llama3(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    """Llama 3.1: long waves are interpolated, short ones kept, a smooth ramp between."""
    s = rope.scaling
    turns = s["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return plain * (keep + (1 - keep) / s["factor"]), 1.0


def _yarn(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    """YaRN (2309.00071, section 3): a ramp over channels, and warmer attention."""
    s = rope.scaling
    pairs, factor = len(plain), s["factor"]

    def channel(turns: float) -> float:
        """The channel pair that makes this many turns within the original context."""
        wave = s["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return pairs * math.log(wave) / math.log(rope.theta)

    first, last = channel(s["beta_fast"]), channel(s["beta_slow"])
    if s.get("truncate", 1.0):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    ramp = np.clip((np.arange(pairs) - first) / max(last - first, 1e-3), 0.0, 1.0)
    return plain * (1 - ramp + ramp / factor), s["attention_factor"]


_KINDS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
}
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": ("factor",),
}


def read_rope(config: Mapping[str, Any], default_theta: float) -> Rope:
    """The rotary embedding a config.json describes.

    Raises:
        UnsupportedArchitecture: a kind of scaling nothing here computes.
        CheckpointError: a number is missing or makes no sense.

    """
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise CheckpointError(f"config.json: rope_scaling is {scaling!r}, expected an object")
    theta = scaling.get("rope_theta", config.get("rope_theta", default_theta))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _KINDS or "mscale" in scaling:
        known = ", ".join(sorted(_KINDS))
        raise UnsupportedArchitecture(f"rope scaling {kind!r} is not known; known are {known}")
    if config.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedArchitecture("partial_rotary_factor: only whole heads are rotated here")
    numbers = {"rope_theta": theta, **scaling}
    if kind == "yarn":
        numbers = _yarn_numbers(numbers, config)
    for name in ("rope_theta", *_NEEDED[kind]):
        value = numbers.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise CheckpointError(f"config.json: {name} of the rope is {value!r}, expected > 0")
    if kind == "llama3" and not numbers["low_freq_factor"] < numbers["high_freq_factor"]:
        raise CheckpointError("config.json: low_freq_factor is not below high_freq_factor")
    kept = {k: float(v) for k, v in numbers.items() if isinstance(v, int | float)}
    theta = kept.pop("rope_theta")
    return Rope(theta, kind, kept)


def _yarn_numbers(scaling: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"beta_fast": 32.0, "beta_slow": 1.0, **scaling}
    numbers.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    if numbers.get("attention_factor") is None:
        factor = numbers.get("factor")
        grows = isinstance(factor, int | float) and factor > 1
        numbers["attention_factor"] = 0.1 * math.log(factor) + 1 if grows else 1.0  # type: ignore[arg-type]
    return numbers
