"""Divergence of an exported model from its source: figures and their limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedec.decoding.session import Model, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import ParityError
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Floor:
    """The largest divergence that a format may have.

    Attributes:
        kl_nats: largest mean Kullback-Leibler divergence of the export from its source.
        top1: smallest share of positions at which both have the same most likely token.
        perplexity_ratio: largest ratio of the export's perplexity to its source's.

    """

    kl_nats: float
    top1: float
    perplexity_ratio: float


_EXACT = Floor(1e-5, 0.99, 1.001)
_HALF = Floor(1e-3, 0.97, 1.01)
_EIGHT_BITS = Floor(0.02, 0.90, 1.05)
_FIVE_BITS = Floor(0.10, 0.80, 1.15)
_FOUR_BITS = Floor(0.30, 0.70, 1.35)
_FEW_BITS = Floor(1.0, 0.50, 2.0)
FLOORS = {
    **dict.fromkeys(("fp32", "f32"), _EXACT),
    **dict.fromkeys(("fp16", "f16"), _HALF),
    **dict.fromkeys(("int8", "q8_0", "q6_k", "bf16"), _EIGHT_BITS),
    **dict.fromkeys(("q5_0", "q5_1", "q5_k_s", "q5_k_m"), _FIVE_BITS),
    **dict.fromkeys(
        ("auto", "int4", "lut4", "q4_0", "q4_1", "q4_k_s", "q4_k_m", "iq4_nl", "iq4_xs"), _FOUR_BITS
    ),
    **dict.fromkeys(("q3_k_s", "q3_k_m", "q3_k_l", "q2_k"), _FEW_BITS),
}
# int8 activations lose about as much as 5-bit weights.
_ACTIVATIONS = {"int8": _FIVE_BITS, "int16": _EIGHT_BITS}
_FINER = {
    "auto": "--weights int8",
    "int4": "--weights auto",
    "lut4": "--weights int8",
    "int8": "--weights fp16",
    "q8_0": "--weights f16",
    "q6_k": "--weights q8_0",
}
# Weights that --calibrated brings closer to their source.
_CALIBRATED = ("auto", "int4", *(name for name in FLOORS if re.match("i?q[2-5]", name)))


@dataclass(frozen=True, slots=True)
class ParityFigures:
    """Figures of a comparison; perplexities are those of the text that was compared.

    Attributes:
        tokens: predictions compared.
        kl_nats, top1: see Floor.
        perplexity_source, perplexity: of the checkpoint and of the export.
        fp32_layer_error: largest relative difference of any layer of the fp32 graph.

    """

    tokens: int
    kl_nats: float
    top1: float
    perplexity_source: float
    perplexity: float
    fp32_layer_error: float

    def check(
        self,
        name: str,
        weights: str,
        kv: str = "fp32",
        activations: str | None = None,
        *,
        calibrated: bool = True,
    ) -> None:
        """Raise ParityError if a figure exceeds the limit of the coarsest of the formats.

        Args:
            name: of the model, for the message.
            activations: ``int8`` or ``int16`` if products multiply integers.
            calibrated: whether the rounding of the weights was; else the message proposes it.

        """
        floors = [
            FLOORS[weights],
            FLOORS[kv],
            *([_ACTIVATIONS[activations]] if activations else []),
        ]
        floor = max(floors, key=lambda floor: floor.kl_nats)
        ratio = self.perplexity / self.perplexity_source
        short = []
        if not self.kl_nats <= floor.kl_nats:
            short.append(f"KL {self.kl_nats:.4g} nats (at most {floor.kl_nats:g})")
        if not self.top1 >= floor.top1:
            short.append(f"top-1 agreement {self.top1:.3f} (at least {floor.top1:g})")
        if not ratio <= floor.perplexity_ratio:
            short.append(f"perplexity times {ratio:.3f} (at most {floor.perplexity_ratio:g})")
        if short:
            coarse = "--weights q8_0" if "q" in weights else "--kv fp32"
            finer = _FINER.get(weights, coarse)
            if weights in _CALIBRATED:
                other = "--weights int8" if weights == "int4" else ""
                finer = " or ".join(filter(None, (finer, other if calibrated else "--calibrated")))
            if activations == "int8":
                finer = "--static-activations int16"
            raise ParityError(
                f"{name} in {weights} diverges too far from its source: {', '.join(short)}:"
                f" try {finer}, or another --parity-text if this is not the model's kind of text"
            )


def check_layer(
    layer: int, before: FloatArray, got: FloatArray, expected: FloatArray, what: str, floor: float
) -> float:
    """Return the difference of a layer's output, relative to what the layer adds.

    Args:
        before: the residual stream before the layer.
        got, expected: the stream after it, as computed and by the reference.
        what: name of the program that computed it, for messages.
        floor: a larger difference is a bug of the emitter.

    Raises:
        ParityError: the difference is beyond ``floor``.

    """
    # A layer may add nothing (see models/grow.py).
    added = max(np.linalg.norm(expected - before), 1e-3 * np.linalg.norm(expected))
    difference = float(np.linalg.norm(got - expected) / added)
    if not difference < floor:
        raise ParityError(
            f"layer {layer} of the {what} differs from the reference by"
            f" {difference:.2g}, expected less than {floor}: please report this model"
        )
    return difference


class Divergence:
    """Compares two rows of logits per token, given a few columns at a time.

    With running maxima, sums of powers and the sum of e^z (z - z') the divergence
    KL(p || p') = sum p (z - z') - log S + log S' needs no row as a whole.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._next = np.array(tokens[1:], np.int64)
        count = len(self._next)
        self._source, self._export = _Side(count), _Side(count)
        self._cross = np.zeros(count)
        self._cross_shift = np.full(count, -np.inf)

    def add(self, source: FloatArray, export: FloatArray, start: int) -> None:
        """Add columns from token ``start`` on, each ``[n - 1, columns]``."""
        shift = np.maximum(self._cross_shift, source.max(axis=1))
        powers = np.exp(source - shift[:, None])
        self._cross *= np.exp(self._cross_shift - shift)
        self._cross += (powers * (source.astype(np.float64) - export)).sum(axis=1)
        self._cross_shift = shift
        self._source.add(source, start, self._next)
        self._export.add(export, start, self._next)

    def result(self, fp32_layer_error: float) -> ParityFigures:
        """Return the figures over all columns."""
        source, export = self._source, self._export
        kl = self._cross / source.sum - source.log_sum + export.log_sum
        return ParityFigures(
            tokens=len(self._next),
            kl_nats=max(float(kl.mean()), 0.0),
            top1=float((source.best == export.best).mean()),
            perplexity_source=source.perplexity,
            perplexity=export.perplexity,
            fp32_layer_error=fp32_layer_error,
        )


class _Side:
    """One model's rows: log sum of powers, best token, and the next token's logit."""

    def __init__(self, count: int) -> None:
        self.shift: DoubleArray = np.full(count, -np.inf)
        self.sum: DoubleArray = np.zeros(count)
        self.best = np.zeros(count, np.int64)
        self._chosen: DoubleArray = np.zeros(count)

    def add(self, logits: FloatArray, start: int, next_tokens: npt.NDArray[np.int64]) -> None:
        best = logits.argmax(axis=1)
        largest = logits.max(axis=1)
        self.best = np.where(largest > self.shift, best + start, self.best)
        shift = np.maximum(self.shift, largest)
        powers = np.exp(logits - shift[:, None]).sum(axis=1, dtype=np.float64)
        self.sum = self.sum * np.exp(self.shift - shift) + powers
        self.shift = shift
        here = (next_tokens >= start) & (next_tokens < start + logits.shape[1])
        self._chosen[here] = logits[here, next_tokens[here] - start]

    @property
    def log_sum(self) -> DoubleArray:
        return self.shift + np.log(self.sum)

    @property
    def perplexity(self) -> float:
        return float(np.exp((self.log_sum - self._chosen).mean()))


OnStep = Callable[[int, int], None]


def compare_model(
    model: Model, spec: DecoderSpec, tensors: TensorReader, tokens: Sequence[int], on_step: OnStep
) -> Divergence:
    """Compare a model of fixed widths with its source on a text, in passes of the widest."""
    wide = (model.capabilities.row_widths or (len(tokens),))[-1]
    session = model.open(len(tokens))
    steps = 1 + -(-len(tokens) // wide)
    found: list[FloatArray] = []
    for start in range(0, len(tokens), wide):
        on_step(1 + start // wide, steps)
        tree = TokenTree.chain(tokens[start : start + wide])
        logits = session.forward(tree, want=Want.LOGITS).logits
        assert logits is not None
        found.append(logits[:, : spec.vocab_used].copy())
        session.commit(range(len(tree)))
    session.close()
    expected = Reference(spec, tensors).logits(tokens)[:, : spec.vocab_used]
    divergence = Divergence(tokens)
    divergence.add(expected[:-1], np.concatenate(found)[:-1], 0)
    on_step(steps, steps)
    return divergence
