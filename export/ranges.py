"""Ranges of what goes into a decoder's products and comes out of them, measured on texts.

An NPU that multiplies integers takes activations on a grid that is fixed beforehand. A few channels
of a large model's activations are many times the others, and a grid that reaches them leaves the
others few steps. These channels are named here, so that what they exceed the grid by can be
computed apart in floating point (shadow outlier execution, llm.npu, 2407.05858).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.export.parallel import InStep, ahead, in_step
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader, chunks
from edgedec.models.decoder import DecoderSpec

TOKENS = 4096
# A channel whose largest value is this many times the median channel's is an outlier, ...
# (By the divergence of the target that ships in int8: 0.027 nats with none, 0.017 with the 3
# channels beyond 4, 0.012 with the 38 beyond 3, 0.008 with the 269 beyond 2, which cost more.)
_OUTLIER = 3.0
# ... of at most this share of the channels.
_MOST_OUTLIERS = 1 / 16
# Outputs of other texts may be larger: 16 bits lose by a margin of 1.1 what 1.5 keeps.
_MARGIN = 1.5
# An output channel that hardly spoke on the texts gets this share of the median channel's range.
_QUIET = 0.25
# The head is too large to compute for every token; its 16 bits leave room for what others reach.
_HEAD_EVERY, _HEAD_MARGIN = 8, 2.0
_SMALLEST = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class Grid:
    """Unsigned integers for numbers: ``scale * (q - zero)``.

    Attributes:
        bits: 8 or 16.
        scale, zero: of the grid.

    """

    bits: int
    scale: np.float32
    zero: int

    @classmethod
    def over(cls, low: float, high: float, bits: int) -> Grid:
        """Return the grid from ``low`` to ``high``, and 0, which it has exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        most = 2**bits - 1
        scale = np.maximum(np.float32((high - low) / most), _SMALLEST / np.float32(most))
        return cls(bits, scale, int(np.clip(np.rint(-low / scale), 0, most)))

    @property
    def ends(self) -> tuple[np.float32, np.float32]:
        """Return the smallest and the largest number."""
        most = 2**self.bits - 1
        return self.scale * np.float32(-self.zero), self.scale * np.float32(most - self.zero)


@dataclass(frozen=True, slots=True)
class Range:
    """What a product needs to be one of integers.

    Attributes:
        grid: of its input.
        outliers: input channels that go beyond the grid, ascending.
        peaks: largest magnitudes of its output channels, without what the outliers exceed the
            grid by, ``[out]``.

    """

    grid: Grid
    outliers: tuple[int, ...]
    peaks: FloatArray


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of a decoder's products.

    Attributes:
        bits: of activations; the head's have 16.
        products: by the matrix.

    """

    bits: int
    products: Mapping[str, Range]

    def of(self, names: Sequence[str]) -> Range:
        """Return the range of stacked matrices, which have one input."""
        found = [self.products[name] for name in names]
        peaks = np.concatenate([each.peaks for each in found])
        return Range(found[0].grid, found[0].outliers, peaks)


def measured(
    spec: DecoderSpec,
    tensors: TensorReader,
    texts: Sequence[Sequence[int]],
    bits: int,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Ranges:
    """Return the ranges of a decoder's products on texts.

    Args:
        on_layer: called with layers done and the number of layers.

    """
    reference, found = Reference(spec, tensors), dict[str, Range]()
    streams = [reference.embed(text) for text in _some(texts)]
    for layer in range(spec.layers):
        streams = _through(in_step(reference, layer, streams), tensors, bits, found)
        on_layer(layer + 1, spec.layers)
    found[spec.name("head")] = _head(reference, tensors, streams)
    return Ranges(bits, found)


def _some(texts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the first texts, ``TOKENS`` tokens or a little more."""
    counts = np.cumsum([0, *map(len, texts)])
    return [text for text, before in zip(texts, counts[:-1], strict=True) if before < TOKENS]


def _through(
    texts: InStep, tensors: TensorReader, bits: int, found: dict[str, Range]
) -> list[FloatArray]:
    """Return the residual streams after a layer; ``found`` gets the ranges of its products."""
    asked = next(texts)
    try:
        while True:
            inputs = [each[0].x for each in asked]
            grid, outliers = _grid(inputs, bits)
            matrices = [tensors.rows(*each[:3]).T for each in asked[0]]
            for each, matrix in zip(asked[0], matrices, strict=True):
                found[each.name] = Range(grid, outliers, _peaks(inputs, matrix, grid))
            asked = texts.send(matrices)
    except StopIteration as done:
        after: list[FloatArray] = done.value
        return after


def _grid(inputs: Sequence[FloatArray], bits: int) -> tuple[Grid, tuple[int, ...]]:
    """Return a product's grid, and the outliers among its input channels."""
    low = np.min([x.min(axis=0) for x in inputs], axis=0)
    high = np.max([x.max(axis=0) for x in inputs], axis=0)
    sizes = np.maximum(-low, high)
    largest = np.argsort(-sizes, kind="stable")[: int(len(sizes) * _MOST_OUTLIERS)]
    outliers = np.sort(largest[sizes[largest] > _OUTLIER * np.median(sizes)])
    rest = np.delete(np.stack((low, high)), outliers, axis=1)
    return Grid.over(rest.min(), rest.max(), bits), tuple(outliers.tolist())


def _peaks(inputs: Sequence[FloatArray], matrix: FloatArray, grid: Grid) -> FloatArray:
    """Return the range of each output channel, ``[out]``, of a matrix ``[in, out]``."""

    def largest(x: FloatArray) -> FloatArray:
        peak: FloatArray = np.abs(np.clip(x, *grid.ends) @ matrix).max(axis=0)
        return peak

    peaks = np.max(list(ahead(largest, inputs)), axis=0) * np.float32(_MARGIN)
    least = np.maximum(np.median(peaks) * np.float32(_QUIET), _SMALLEST)
    ranges: FloatArray = np.maximum(peaks, least)
    return ranges


def _head(reference: Reference, tensors: TensorReader, streams: list[FloatArray]) -> Range:
    """Return the head's range: one for all tokens, since a text reaches few of them."""
    spec, name = reference.spec, reference.spec.name("head")
    factor = np.float32(spec.scales.logits)  # which the graph's final norm multiplies by
    inputs = [reference.final_norm(x) * factor for x in streams]
    low, high = (float(end([end(x) for x in inputs])) for end in (np.min, np.max))
    some = np.concatenate([x[::_HEAD_EVERY] for x in inputs])
    largest = max(float(np.abs(some @ part.T).max()) for part in chunks(tensors, [name]))
    peaks = np.full(tensors.shape(name)[0], max(largest, _SMALLEST), np.float32)
    grid = Grid.over(_HEAD_MARGIN * low, _HEAD_MARGIN * high, 16)
    return Range(grid, (), peaks * np.float32(_HEAD_MARGIN))
