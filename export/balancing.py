"""Takes outliers out of what matrices are fed, by moving them into the weights.

In large models a few channels carry values many times those of the others, and a block of int8
activations that holds one of them keeps little of the rest. A factor divided out of a channel
where it is made (a norm's weight, a matrix's row) and multiplied into the columns that read it
changes nothing but that (SmoothQuant, 2211.10438, section 4). How much to move is tried out for
each place, by the error of its products with both sides rounded (AWQ, 2306.00978, section 3.2).
Where there are no outliers nothing is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.export.quantize import dequantize, quantize
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray, ScaledTensors, TensorReader, read
from edgedec.models.decoder import DecoderSpec

# A channel this many times as large as the median one is an outlier.
_OUTLIER = 8.0
# Exponents of a channel's size over the median that are tried.
_SHARES = (0.25, 0.5, 0.75, 1.0)
# Outliers show on few tokens; how much to move is tried on some of their rows.
_TOKENS = 2048
_ROWS = 128


@dataclass(frozen=True, slots=True)
class Joint:
    """A place where a factor can be moved from what makes channels to what reads them.

    Attributes:
        makers: tensors whose rows are the channels.
        readers: matrices whose columns are the channels.
        copies: how often each of the makers' ``width`` channels is read, one after the other:
            several query heads share a value head.
        width: channels that are copied together.

    """

    makers: tuple[str, ...]
    readers: tuple[str, ...]
    copies: int = 1
    width: int = 1

    def made(self, sizes: FloatArray) -> FloatArray:
        """Sizes by channel of the makers: the largest of a channel's copies."""
        largest: FloatArray = sizes.reshape(-1, self.copies, self.width).max(axis=1).reshape(-1)
        return largest

    def read(self, factors: FloatArray) -> FloatArray:
        """Factors by channel of the readers."""
        by_width = factors.reshape(-1, 1, self.width)
        return np.repeat(by_width, self.copies, axis=1).reshape(-1)


def balanced(
    spec: DecoderSpec,
    tensors: TensorReader,
    texts: Sequence[Sequence[int]],
    bits: int,
    block_size: int,
) -> tuple[TensorReader, int]:
    """The same decoder without the outliers that texts show.

    Args:
        spec: the decoder.
        tensors: its weights.
        texts: token ids.
        bits, block_size: of the matrices it will have.

    Returns:
        Its weights, and at how many places something was moved.

    """
    scaled, moved = ScaledTensors(tensors), 0
    reference = Reference(spec, tensors)
    streams = [reference.embed(text) for text in _some(texts)]
    for layer in range(spec.layers):
        inputs: dict[str, list[FloatArray]] = {}

        def hear(asked: Product, inputs: dict[str, list[FloatArray]] = inputs) -> None:
            inputs.setdefault(asked.name, []).append(asked.x)

        streams = [reference.layer(layer, x, hear) for x in streams]
        for joint in _joints(spec, layer):
            x = np.concatenate(inputs[joint.readers[0]])
            factors = _factors(joint, tensors, x, bits, block_size)
            if factors is None:
                continue
            moved += 1
            for name in joint.makers:
                scaled.multiply_rows(name, np.reciprocal(factors))
            for name in joint.readers:
                scaled.multiply_columns(name, joint.read(factors))
    return scaled, moved


def _some(texts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    chosen: list[Sequence[int]] = []
    for text in texts:
        if sum(map(len, chosen)) >= _TOKENS:
            break
        chosen.append(text)
    return chosen


def _joints(spec: DecoderSpec, layer: int) -> Iterator[Joint]:
    """The joints of a layer that leave what it computes as it is."""

    def made_by(role: str, biased: bool) -> tuple[str, ...]:
        roles = (role, f"{role}_bias") if biased else (role,)
        return tuple(spec.name(each, layer) for each in roles)

    def names(*roles: str) -> tuple[str, ...]:
        return tuple(spec.name(role, layer) for role in roles)

    fed = ("gate", "up") if spec.gated else ("up",)
    dense = spec.experts is None
    if "attention_norm" in spec.layer_norms and (dense or spec.residual != "shared"):
        shared = fed if spec.residual == "shared" else ()
        yield Joint(made_by("attention_norm", spec.norm.bias), names("q", "k", "v", *shared))
    yield Joint(made_by("v", spec.qkv_bias), names("o"), spec.heads // spec.kv_heads, spec.head_dim)
    if dense and "mlp_norm" in spec.layer_norms:
        yield Joint(made_by("mlp_norm", spec.norm.bias), names(*fed))
    if dense and spec.gated:
        yield Joint(made_by("up", spec.mlp_bias), names("down"))


def _factors(
    joint: Joint, tensors: TensorReader, x: FloatArray, bits: int, block_size: int
) -> FloatArray | None:
    """Factors by channel of the makers; None where nothing is gained."""
    sizes = joint.made(np.sqrt(np.square(x).mean(axis=0)))
    median = np.median(sizes)
    if not (np.isfinite(sizes).all() and median > 0 and sizes.max() > _OUTLIER * median):
        return None
    rows = x[:: max(1, len(x) // _ROWS)]
    weights = [read(tensors, name) for name in joint.readers]
    larger = np.maximum(sizes / median, 1).astype(np.float32)
    tried = [np.power(larger, np.float32(share)) for share in (0.0, *_SHARES)]
    lost = [_lost(rows, weights, joint.read(factors), bits, block_size) for factors in tried]
    best = int(np.argmin(lost))
    return tried[best] if best else None


def _lost(
    x: FloatArray, weights: Sequence[FloatArray], factors: FloatArray, bits: int, block_size: int
) -> float:
    """Squared error of the products with both sides rounded."""
    fed, lost = _rounded(x / factors, 8, block_size), 0.0
    for matrix in weights:
        error = fed @ _rounded(matrix * factors, bits, block_size).T - x @ matrix.T
        lost += float(np.vdot(error, error))
    return lost


def _rounded(rows: FloatArray, bits: int, block_size: int) -> FloatArray:
    done = quantize(rows, bits, block_size)
    return dequantize(done.packed, done.scales, bits, rows.shape[1])
