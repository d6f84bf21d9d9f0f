"""Rotary position embedding (RoFormer, 2104.09864) and its scalings to longer contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec._support.fields import shown
from edgedec._support.scaled_context import original_context, scaled_context
from edgedec.errors import CheckpointError, UnsupportedArchitecture

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of halves (channel i is rotated with channel i + dim / 2).

    Attributes:
        theta: the base of the frequencies.
        kind: ``default``, ``linear``, ``dynamic``, ``llama3``, ``yarn``, ``longrope`` or
            ``proportional``.
        scaling: the numbers of that kind, as config.json names them.
        short, long: of longrope, what each pair's frequency is divided by, in texts of at
            most ``original_max_position_embeddings`` tokens and in longer ones.

    """

    theta: float
    kind: str = "default"
    scaling: Mapping[str, float] = field(default_factory=dict)
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def tables(self, dim: int, positions: int, max_context: int) -> tuple[FloatArray, FloatArray]:
        """Return cosines and sines, each ``[positions, dim / 2]`` float32.

        Args:
            dim: channels that turn.
            positions: rows.
            max_context: tokens of the longest text.

        """
        frequencies, magnitude = self.frequencies(dim, max_context)
        angles = np.outer(np.arange(positions, dtype=np.float64), frequencies)
        return (
            (np.cos(angles) * magnitude).astype(np.float32),
            (np.sin(angles) * magnitude).astype(np.float32),
        )

    def longest_text(self, stated: int) -> int:
        """Return the tokens of the longest text of a model whose config.json states ``stated``."""
        factor, original = (
            self.scaling.get(name, 0.0) for name in ("factor", "original_max_position_embeddings")
        )
        return scaled_context(self.kind, stated, factor, original)

    def frequencies(self, dim: int, max_context: int) -> tuple[DoubleArray, float]:
        """Return radians per position, ``[dim / 2]``, and the factor on cosines and sines."""
        exponents = np.arange(0, dim, 2, dtype=np.float64) / dim
        plain: DoubleArray = self.theta**-exponents
        if self.kind == "longrope":
            return self._longrope(plain, max_context)
        return _KINDS[self.kind](self, plain)

    def _longrope(self, plain: DoubleArray, max_context: int) -> tuple[DoubleArray, float]:
        """LongRoPE (2402.13753).

        Transformers changes from short to long factors when a text outgrows the original
        context, and keys it has cached keep the old ones. A graph whose tables are fixed can
        promise one of the two: short where no text can outgrow it, long elsewhere.
        """
        fits = max_context <= self.scaling["original_max_position_embeddings"]
        factors = np.array(self.short if fits else self.long, np.float64)
        return plain / factors, self.scaling["attention_factor"]


def _default(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    # "dynamic" as well: its base grows only beyond the trained context, which no export exceeds.
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
    """YaRN (2309.00071, section 3): a ramp over channels, and an attention temperature."""
    s = rope.scaling
    pairs, factor = len(plain), s["factor"]

    def channel(turns: float) -> float:
        """Return the channel pair that makes this many turns within the original context."""
        wave = s["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return pairs * math.log(wave) / math.log(rope.theta)

    first, last = channel(s["beta_fast"]), channel(s["beta_slow"])
    if s.get("truncate", 1.0):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    ramp = np.clip((np.arange(pairs) - first) / max(last - first, 1e-3), 0.0, 1.0)
    return plain * (1 - ramp + ramp / factor), s["attention_factor"]


def _proportional(rope: Rope, plain: DoubleArray) -> tuple[DoubleArray, float]:
    """Gemma 4: only the first pairs rotate; frequencies are those of a rotation of all pairs."""
    turning = int(rope.scaling["partial_rotary_factor"] * len(plain))
    still = np.where(np.arange(len(plain)) < turning, plain, 0.0)
    return still / rope.scaling.get("factor", 1.0), 1.0


_KINDS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _default,
    "proportional": _proportional,
}
# Beyond any known rope; refused before such numbers are multiplied.
_LEAST, _MOST = 1e-9, 10**15
_CONTEXTS = ("max_position_embeddings", "original_max_position_embeddings")
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
    "yarn": (
        "factor",
        "beta_fast",
        "beta_slow",
        "original_max_position_embeddings",
        "attention_factor",
    ),
    "longrope": ("original_max_position_embeddings", "attention_factor"),
    "proportional": ("partial_rotary_factor",),
}


def read_rope(config: Mapping[str, Any], default_theta: float, dim: int) -> Rope:
    """Return the rotary embedding that a config.json describes.

    Args:
        config: the file.
        default_theta: its base where none is given.
        dim: channels of a head that turn.

    Raises:
        UnsupportedArchitecture: an unsupported kind of scaling.
        CheckpointError: a number is missing or out of range.

    """
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise CheckpointError(f"config.json: rope_scaling is {scaling!r}, expected an object")
    if any(isinstance(value, Mapping) for value in scaling.values()):
        raise UnsupportedArchitecture("rope_parameters by kind of layer are not supported")
    theta = scaling.get("rope_theta", config.get("rope_theta", default_theta))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    kind = "longrope" if kind == "su" else kind  # its name in the first folders
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise UnsupportedArchitecture(f"rope scaling {shown(kind)}: expected one of {known}")
    _bound({"rope_theta": theta, **{name: config.get(name) for name in _CONTEXTS}, **scaling})
    scaling = _without_mscale(scaling)
    numbers = {"rope_theta": theta, **scaling}
    if kind in _COMPLETED:
        numbers = _COMPLETED[kind](numbers, config)
    factors = {}
    if kind == "longrope":
        factors = {name: _factors(scaling.get(f"{name}_factor"), name, dim // 2) for name in _SIDES}
    for name in ("rope_theta", *_NEEDED[kind]):
        value = numbers.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > _LEAST:
            raise CheckpointError(
                f"config.json: {name} of the rope is {shown(value)}, expected > 0"
            )
    if kind == "yarn" and theta <= 1:
        raise CheckpointError(f"config.json: rope_theta of the rope is {theta!r}, expected > 1")
    if kind == "llama3" and not numbers["low_freq_factor"] < numbers["high_freq_factor"]:
        raise CheckpointError("config.json: low_freq_factor is not below high_freq_factor")
    kept = {k: float(v) for k, v in numbers.items() if isinstance(v, int | float)}
    theta = kept.pop("rope_theta")
    return Rope(theta, kind, kept, **factors)


def _bound(numbers: Mapping[str, Any]) -> None:
    """Refuse numbers beyond any known rope."""
    for name, value in numbers.items():
        if isinstance(value, int | float) and not abs(value) <= _MOST:
            raise CheckpointError(
                f"config.json: {name} is {shown(value)}, expected at most {_MOST:g}"
            )


def _without_mscale(scaling: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return YaRN's numbers with the factor that two equal ``mscale`` stand for: 1."""
    names = ("mscale", "mscale_all_dim")
    both = [scaling.get(name) for name in names]
    if both == [None, None]:
        return scaling
    if both[0] != both[1]:
        raise UnsupportedArchitecture(
            f"rope scaling with mscale {both[0]!r} and mscale_all_dim {both[1]!r}: expected equal"
            " ones"
        )
    return {"attention_factor": 1.0} | {k: v for k, v in scaling.items() if k not in names}


def _linear_numbers(scaling: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    name = "original_max_position_embeddings"
    stated, factor = config.get("max_position_embeddings"), scaling.get("factor")
    original = scaling.get(name) or config.get(name)
    if original is None and type(stated) is int and type(factor) in (int, float):
        original = original_context("linear", stated, float(factor))  # type: ignore[arg-type]
    return {**scaling, **({} if original is None else {name: original})}


def _yarn_numbers(scaling: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    stated = {name: value for name, value in scaling.items() if value is not None}
    numbers = {"beta_fast": 32.0, "beta_slow": 1.0, **stated}
    numbers.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    if numbers.get("attention_factor") is None:
        factor = numbers.get("factor")
        grows = isinstance(factor, int | float) and factor > 1
        numbers["attention_factor"] = 0.1 * math.log(factor) + 1 if grows else 1.0  # type: ignore[arg-type]
    return numbers


_SIDES = ("short", "long")


def _longrope_numbers(scaling: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attention factor of a stretched context (2402.13753, equation 5)."""
    name, longest = "original_max_position_embeddings", config.get("max_position_embeddings")
    original = config.get(name) or scaling.get(name) or longest
    numbers = {**scaling, name: original}
    if numbers.get("attention_factor") is None:
        factor = 1.0
        if isinstance(original, int | float) and isinstance(longest, int | float) and original > 1:
            stated = scaling.get("factor") if longest == original else None
            factor = stated if isinstance(stated, int | float) else longest / original
            factor = max(factor, 1.0)
            factor = math.sqrt(1 + math.log(factor) / math.log(original))
        numbers["attention_factor"] = factor
    return numbers


# Numbers that follow from others.
_COMPLETED = {"linear": _linear_numbers, "yarn": _yarn_numbers, "longrope": _longrope_numbers}


def _factors(values: object, name: str, count: int) -> tuple[float, ...]:
    given = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
    kept = tuple(float(v) for v in given if type(v) in (int, float) and 0 < v <= _MOST)
    if len(kept) != count or len(given) != count:
        raise CheckpointError(
            f"config.json: {name}_factor of the longrope is not a list of {count} numbers > 0"
        )
    return kept
