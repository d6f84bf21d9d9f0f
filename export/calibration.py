"""Scales of an int8 cache, from the keys and values of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

# Keys and values of other texts may be a little larger.
_MARGIN = 1.25


def kv_scales(
    spec: DecoderSpec,
    tensors: TensorReader,
    tokens: Sequence[int],
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return the scales of keys and of values by layer, each ``[kv_heads, head_dim]`` float32.

    A channel's scale is its largest magnitude over 127, with a margin. A pair of a key's channels
    that rotates together shares the pair's largest length, which no position can exceed.
    """
    scales: list[tuple[FloatArray, FloatArray]] = []

    def listen(layer: int, keys: FloatArray, values: FloatArray) -> None:
        largest = np.abs(keys).max(axis=0)
        if spec.ropes[layer] is not None:
            turned = keys[..., : spec.rotary_dim]
            pairs = np.hypot(*np.split(turned, 2, axis=-1)).max(axis=0)
            largest[:, : spec.rotary_dim] = np.tile(pairs, 2)
        scales.append((_scale(largest), _scale(np.abs(values).max(axis=0))))

    reference = Reference(spec, tensors, listen)
    x = reference.embed(tokens)
    for layer in range(spec.layers):
        x = reference.layer(layer, x)
        on_layer(layer + 1, spec.layers)
    return tuple(scales)


def _scale(largest: FloatArray) -> FloatArray:
    scale: FloatArray = np.maximum(largest * np.float32(_MARGIN / 127), np.float32(1e-8))
    return scale
