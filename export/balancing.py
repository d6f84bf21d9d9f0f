"""Moves outliers from activations into weights, so that both can be rounded (SmoothQuant).

In large models a few channels have values many times those of the others, and a block of int8
activations that contains one of them loses precision in the rest. Dividing a channel by a factor
where it is produced (a norm's weight, a matrix's row) and multiplying the columns that consume it
by the same factor does not change the products (2211.10438, section 4). The factor's exponent is
chosen for the least error when both sides of the products are rounded (AWQ, 2306.00978, section
3.2). Channels of a joint without outliers are not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.export.parallel import in_step
from edgedec.export.quantize import dequantize, quantize
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, ScaledTensors, TensorReader, read
from edgedec.models.decoder import DecoderSpec

# A channel whose RMS is this many times the median channel's is an outlier.
_OUTLIER = 8.0
# Candidate exponents of a channel's RMS over the median; 0 changes nothing.
_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
# A few tokens reveal outliers; exponents are compared on some of their rows.
_TOKENS = 1024
_ROWS = 128


@dataclass(frozen=True, slots=True)
class Joint:
    """Tensors that produce channels and the matrices that consume them.

    Attributes:
        producers: tensors whose rows are the channels.
        consumers: matrices whose columns are the channels.
        copies: how often each group of ``width`` produced channels is consumed, one copy after the
            other: several query heads share a value head.
        width: channels that are copied together.

    """

    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    copies: int = 1
    width: int = 1

    def by_producer(self, sizes: FloatArray) -> FloatArray:
        """Reduce sizes of consumed channels to produced ones: the largest of a channel's copies."""
        largest: FloatArray = sizes.reshape(-1, self.copies, self.width).max(axis=1).reshape(-1)
        return largest

    def by_consumer(self, factors: FloatArray) -> FloatArray:
        """Expand factors of produced channels to consumed ones."""
        by_width = factors.reshape(-1, 1, self.width)
        return np.repeat(by_width, self.copies, axis=1).reshape(-1)


def balanced(
    spec: DecoderSpec,
    tensors: TensorReader,
    texts: Sequence[Sequence[int]],
    bits: int,
    block_size: int,
) -> tuple[TensorReader, int]:
    """Return the decoder's weights with outliers moved out of its activations.

    Args:
        texts: token ids; they reveal the outliers.
        bits, block_size: of the quantised matrices.

    Returns:
        The weights, and the number of joints that were changed.

    """
    scaled, moved = ScaledTensors(tensors), 0
    reference = Reference(spec, tensors)
    streams = [reference.embed(text) for text in _some(texts)]
    for layer in range(spec.layers):
        streams, inputs = _through(reference, tensors, layer, streams)
        for joint in _joints(spec, layer):
            x = np.concatenate(inputs[joint.consumers[0]])
            factors = _factors(joint, tensors, x, bits, block_size)
            if factors is None:
                continue
            moved += 1
            for name in joint.producers:
                scaled.multiply_rows(name, np.reciprocal(factors))
            for name in joint.consumers:
                scaled.multiply_columns(name, joint.by_consumer(factors))
    return scaled, moved


def _through(
    reference: Reference, tensors: TensorReader, layer: int, streams: list[FloatArray]
) -> tuple[list[FloatArray], dict[str, list[FloatArray]]]:
    """Return the residual streams after a layer, and the inputs of each of its matrices."""
    inputs: dict[str, list[FloatArray]] = {}
    texts = in_step(reference, layer, streams)
    asked = next(texts)
    try:
        while True:
            for each in asked[0]:
                inputs.setdefault(each.name, []).extend(text[0].x for text in asked)
            asked = texts.send([tensors.rows(*each[:3]).T for each in asked[0]])
    except StopIteration as done:
        return done.value, inputs


def _some(texts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    chosen: list[Sequence[int]] = []
    for text in texts:
        if sum(map(len, chosen)) >= _TOKENS:
            break
        chosen.append(text)
    return chosen


def _joints(spec: DecoderSpec, layer: int) -> Iterator[Joint]:
    """Yield the joints of a layer, at which factors cancel."""

    def producers(role: str, biased: bool) -> tuple[str, ...]:
        roles = (role, f"{role}_bias") if biased else (role,)
        return tuple(spec.name(each, layer) for each in roles)

    def names(*roles: str) -> tuple[str, ...]:
        return tuple(spec.name(role, layer) for role in roles)

    fed = ("gate", "up") if spec.gated else ("up",)
    dense = spec.at(layer).experts is None
    *first, last = spec.mixer_matrices(layer)
    if "attention_norm" in spec.layer_norms and (dense or spec.residual != "shared"):
        shared = fed if spec.residual == "shared" else ()
        yield Joint(producers("attention_norm", spec.norm.bias), names(*first, *shared))
    if spec.mixer(layer) is None and not spec.sizes:
        yield Joint(
            producers("v", spec.qkv_bias), names(last), spec.heads // spec.kv_heads, spec.head_dim
        )
    if dense and "mlp_norm" in spec.layer_norms:
        yield Joint(producers("mlp_norm", spec.norm.bias), names(*fed))
    if dense and spec.gated:
        yield Joint(producers("up", spec.mlp_bias), names("down"))


def _factors(
    joint: Joint, tensors: TensorReader, x: FloatArray, bits: int, block_size: int
) -> FloatArray | None:
    """Return the factor of each produced channel, ``[channels]``, or None to leave the joint alone.

    ``x`` ``[n, columns]`` are inputs of the consumers. The candidates include the exponent 0, which
    changes nothing: a joint is unchanged if its channels have no outliers, or if no other exponent
    reduces the error.
    """
    sizes = joint.by_producer(np.sqrt(np.square(x).mean(axis=0)))
    median = np.median(sizes)
    if not (np.isfinite(sizes).all() and median > 0 and sizes.max() > _OUTLIER * median):
        return None
    rows = x[:: max(1, len(x) // _ROWS)]
    weights = [read(tensors, name) for name in joint.consumers]
    larger = np.maximum(sizes / median, 1).astype(np.float32)
    tried = [np.power(larger, np.float32(exponent)) for exponent in _EXPONENTS]
    lost = [_lost(rows, weights, joint.by_consumer(factors), bits, block_size) for factors in tried]
    best = int(np.argmin(lost))
    return tried[best] if best else None


def _lost(
    x: FloatArray, weights: Sequence[FloatArray], factors: FloatArray, bits: int, block_size: int
) -> float:
    """Return the squared error of the products when inputs and weights are rounded."""
    fed, lost = _rounded(x / factors, 8, block_size), 0.0
    for matrix in weights:
        error = fed @ _rounded(matrix * factors, bits, block_size).T - x @ matrix.T
        lost += float(np.vdot(error, error))
    return lost


def _rounded(rows: FloatArray, bits: int, block_size: int) -> FloatArray:
    done = quantize(rows, bits, block_size)
    return dequantize(done.packed, done.scales, bits, rows.shape[1])
