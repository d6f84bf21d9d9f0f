"""The functions between an MLP's matrices, in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgedec.export.tensors import FloatArray
from edgedec.models.traits import Activation


def silu(x: FloatArray) -> FloatArray:
    """Return ``x * sigmoid(x)``."""
    with np.errstate(over="ignore"):
        active: FloatArray = x / (1 + np.exp(-x))
    return active


def gelu(x: FloatArray) -> FloatArray:
    """Return GELU (1606.08415), ``x`` times the normal distribution function, by ``erf``."""
    return (x * (1 + erf(x / np.sqrt(2))) / 2).astype(np.float32)


def erf(x: FloatArray) -> FloatArray:
    """Return the error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26); numpy has none."""
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    tail = np.polynomial.Polynomial((0.0, *terms))(t) * np.exp(-np.square(size))
    found: FloatArray = np.copysign(1 - tail, x)
    return found


def gelu_tanh(x: FloatArray) -> FloatArray:
    """Return GELU by its tanh approximation (1606.08415, section 2)."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    active: FloatArray = x * (1 + np.tanh(inner)) / 2
    return active


ACTIVATIONS: Mapping[Activation, Callable[[FloatArray], FloatArray]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}
