"""Is the exported model still its source? Compared layer by layer, on text.

Three decoders read the same tokens: the numpy reference over the checkpoint, the exported
graph, and, a layer at a time on the reference's own values, the same graph in fp32. The last
one tells a mistake of the emitter (which is never tolerated) from the loss by quantisation
(which has a floor). No more than a layer, or some rows of the head, is in memory.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.errors import ParityError
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx import Emitter, GraphOptions, attention_feeds
from edgedec.export.reference import Reference
from edgedec.export.slices import Slices
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader
from edgedec.export.weights import make_format
from edgedec.models.decoder import DecoderSpec

DoubleArray = npt.NDArray[np.float64]
OnStep = Callable[[int, int], None]

# Tokens for the fp32 graph: a mistake shows on a few.
_FP32_TOKENS = 64
# Difference of a layer's output, fp32 graph against reference, relative to what it adds.
_FP32_FLOOR = 1e-3


@dataclass(frozen=True, slots=True)
class Floor:
    """How far a format may stray.

    Attributes:
        kl_nats: mean Kullback-Leibler divergence of the export from its source, at most.
        top1: share of positions where both have the same best token, at least.
        perplexity_ratio: perplexity of the export over its source's, at most.

    """

    kl_nats: float
    top1: float
    perplexity_ratio: float


FLOORS = {
    "fp32": Floor(1e-5, 0.99, 1.001),
    "fp16": Floor(1e-3, 0.97, 1.01),
    "int8": Floor(0.02, 0.90, 1.05),
    "int4": Floor(0.30, 0.70, 1.35),
}


@dataclass(frozen=True, slots=True)
class Parity:
    """Figures of a comparison; perplexities are of the text that was read.

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

    def check(self, name: str, weights: str, kv: str = "fp32") -> None:
        """Hold the figures to the floor of the coarser of two formats.

        Raises:
            ParityError: says by how much they fall short.

        """
        floor = max(FLOORS[weights], FLOORS[kv], key=lambda floor: floor.kl_nats)
        ratio = self.perplexity / self.perplexity_source
        short = []
        if not self.kl_nats <= floor.kl_nats:
            short.append(f"KL {self.kl_nats:.4g} nats (at most {floor.kl_nats:g})")
        if not self.top1 >= floor.top1:
            short.append(f"top-1 agreement {self.top1:.3f} (at least {floor.top1:g})")
        if not ratio <= floor.perplexity_ratio:
            short.append(f"perplexity times {ratio:.3f} (at most {floor.perplexity_ratio:g})")
        if short:
            finer = {"int4": "--weights int8", "int8": "--weights fp16"}.get(weights, "--kv fp32")
            raise ParityError(
                f"{name} in {weights} strays too far from its source: {', '.join(short)}:"
                f" try {finer}, or another --parity-text if this is not the model's kind of text"
            )


class ParityRun:
    """One comparison.

    Args:
        spec: the decoder.
        tensors: its weights, as in the checkpoint.
        folder: the exported model.
        options: what it was exported with.

    """

    def __init__(
        self, spec: DecoderSpec, tensors: TensorReader, folder: Path, options: GraphOptions
    ) -> None:
        self._spec, self._tensors, self._options = spec, tensors, options
        self._reference = Reference(spec, tensors)
        self._exported = Slices(folder)

    def compare(self, tokens: Sequence[int], on_step: OnStep) -> Parity:
        """Read ``tokens``; ``on_step(done, total)`` runs after each layer and part of the head.

        Raises:
            ParityError: the fp32 graph does not compute what the reference does.

        """
        spec = self._spec
        rows = max(CHUNK_NUMBERS // max(spec.hidden, len(tokens)), 1)
        parts = [slice(i, min(i + rows, spec.vocab_used)) for i in range(0, spec.vocab_used, rows)]
        steps = spec.layers + len(parts)
        x = self._reference.embed(tokens)
        stream = [self._embedded(np.array(tokens, np.int64), parts)]
        worst = 0.0
        for layer in range(spec.layers):
            after = self._reference.layer(layer, x)
            worst = max(worst, self._fp32_error(layer, x, after))
            stream = self._exported_layer(layer, stream)
            x = after
            on_step(layer + 1, steps)
        names = _stream_names(spec, spec.layers)
        feeds = dict(zip(names, stream, strict=True)) | {"rows": np.arange(len(tokens))}
        flat = self._exported.run(["final.flat"], feeds)[0]
        x = self._reference.final_norm(x)
        divergence = Divergence(tokens)
        for done, part in enumerate(parts, 1):
            expected = self._reference.head(x, part.start, part.stop)
            got = self._exported.head_rows(flat, spec.vocab_size, part)
            divergence.add(expected[:-1], got[:-1], part.start)
            on_step(spec.layers + done, steps)
        return divergence.result(worst)

    def _embedded(self, ids: npt.NDArray[np.int64], parts: Sequence[slice]) -> FloatArray:
        """The exported embedding of ``[n]`` ids, ``[1, n, hidden]``."""
        whole = np.empty((1, len(ids), self._spec.hidden), np.float32)
        for part in parts:
            here = (ids >= part.start) & (ids < part.stop)
            if here.any():
                found = self._exported.embed_rows(ids[None, here], self._spec.vocab_size, part)
                whole[:, here] = found
        return whole

    def _exported_layer(self, layer: int, stream: list[FloatArray]) -> list[FloatArray]:
        feeds = dict(zip(_stream_names(self._spec, layer), stream, strict=True))
        feeds |= attention_feeds(self._spec, layer, stream[0].shape[1], self._options.kv)
        return self._exported.run(_stream_names(self._spec, layer + 1), feeds)

    def _fp32_error(self, layer: int, before: FloatArray, after: FloatArray) -> float:
        """Relative difference of one layer's output, when it is emitted in fp32."""
        if self._options.weights == self._options.kv == "fp32":
            return 0.0  # the exported graph itself
        before, after = before[None, :_FP32_TOKENS], after[None, :_FP32_TOKENS]
        plain = dataclasses.replace(self._options, weights="fp32", kv="fp32", max_context=1024)
        with tempfile.TemporaryDirectory(prefix="edgedec-parity-") as name:
            folder = Path(name)
            with GraphWriter(folder) as graph:
                store = make_format("fp32", 0, graph, self._tensors)
                emitter = Emitter(self._spec, self._tensors, graph, store, plain)
                emitter.attention_inputs()
                outputs = emitter.layer(layer, "x", "")
                graph.save({})
            feeds = {"x": before, **attention_feeds(self._spec, layer, before.shape[1], "fp32")}
            got, branch = Slices(folder).run(outputs, feeds)
        # Relative to what the layer adds; a layer may add nothing (see models/grow.py).
        added = max(np.linalg.norm(after - before), 1e-3 * np.linalg.norm(after))
        difference = np.linalg.norm(got + branch - after) / added
        if not difference < _FP32_FLOOR:
            raise ParityError(
                f"layer {layer} of the fp32 graph differs from the reference by"
                f" {difference:.2g}, expected less than {_FP32_FLOOR}: please report this model"
            )
        return float(difference)


def _stream_names(spec: DecoderSpec, layer: int) -> list[str]:
    """The values whose sum is the residual stream before a layer."""
    if layer == 0:
        return ["embedded"]
    return [f"layers.{layer - 1}.mlp_norm.sum", f"layers.{layer - 1}.down"]


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
        """Columns from token ``start`` on, each ``[n - 1, columns]``."""
        shift = np.maximum(self._cross_shift, source.max(axis=1))
        powers = np.exp(source - shift[:, None])
        self._cross *= np.exp(self._cross_shift - shift)
        self._cross += (powers * (source.astype(np.float64) - export)).sum(axis=1)
        self._cross_shift = shift
        self._source.add(source, start, self._next)
        self._export.add(export, start, self._next)

    def result(self, fp32_layer_error: float) -> Parity:
        """The figures over all columns."""
        source, export = self._source, self._export
        kl = self._cross / source.sum - source.log_sum + export.log_sum
        return Parity(
            tokens=len(self._next),
            kl_nats=max(float(kl.mean()), 0.0),
            top1=float((source.best == export.best).mean()),
            perplexity_source=source.perplexity,
            perplexity=export.perplexity,
            fp32_layer_error=fp32_layer_error,
        )


class _Side:
    """One model's rows: their log sum of powers, best token, and the next token's logit."""

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
