"""Reference of the mixers that replace attention, in numpy, token by token."""

from __future__ import annotations

import numpy as np

from edgedec.export.tensors import FloatArray


def convolved(weight: FloatArray, x: FloatArray) -> FloatArray:
    """Return each channel of ``[n, channels]`` convolved with its own taps, ``[.., 1, taps]``."""
    taps = weight.shape[2]
    padded = np.pad(x, ((taps - 1, 0), (0, 0)))
    total = np.zeros_like(x)
    for at in range(taps):
        total += padded[at : at + len(x)] * weight[:, 0, at]
    return total


def gated(
    query: FloatArray,
    key: FloatArray,
    value: FloatArray,
    decay: FloatArray,
    beta: FloatArray | None = None,
) -> FloatArray:
    """Return what each query reads from a state that decays and stores values by key.

    Args:
        query, key: ``[n, heads, key channels]``.
        value: ``[n, heads, value channels]``.
        decay: factor of the state before each token, ``[n, heads]``.
        beta: of the delta rule (2412.06464), the share of a key's old value that is replaced,
            ``[n, heads]``; None adds to the old value.

    Returns:
        ``[n, heads, value channels]``.

    """
    state = np.zeros((*key.shape[1:], value.shape[2]), np.float32)
    read = np.empty_like(value)
    for at in range(len(value)):
        state *= decay[at, :, None, None]
        new = value[at][:, None]
        if beta is not None:
            new = (new - key[at, :, None] @ state) * beta[at, :, None, None]
        state += key[at, :, :, None] * new
        read[at] = (query[at, :, None] @ state)[:, 0]
    return read


def unit(x: FloatArray) -> FloatArray:
    """Return ``x`` with each row of the last axis scaled to length 1."""
    length = np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + np.float32(1e-6))
    found: FloatArray = x / length
    return found


def softplus(x: FloatArray) -> FloatArray:
    """Return ``log(1 + exp(x))``."""
    found: FloatArray = np.logaddexp(x, np.float32(0))
    return found


def sigmoid(x: FloatArray) -> FloatArray:
    """Return ``1 / (1 + exp(-x))``."""
    with np.errstate(over="ignore"):
        found: FloatArray = np.float32(1) / (np.float32(1) + np.exp(-x))
    return found
