"""Compares an exported model with its source, layer by layer, on text.

Three decoders read the same tokens: the numpy reference over the checkpoint, the exported graph,
and, one layer at a time on the reference's own values, the same graph in fp32. The last one
separates bugs of the emitter, which are never tolerated, from quantisation error, which has a
limit. At most one layer, or some rows of the head, are in memory.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.export.divergence import Divergence, Floor, ParityFigures, check_layer
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx import Emitter, GraphOptions, layer_feeds, stream_names
from edgedec.export.onnx.drafted import OWN_LOGITS, with_rows
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.quantize import WeightForm
from edgedec.export.reference import Reference
from edgedec.export.slices import Slices
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader
from edgedec.export.weights import make_format
from edgedec.models.decoder import DecoderSpec

DoubleArray = npt.NDArray[np.float64]
OnStep = Callable[[int, int], None]

# Tokens for the fp32 graph: a few reveal a bug.
FP32_TOKENS = 64
# Difference of a layer's output, fp32 graph against reference, relative to what it adds.
FP32_FLOOR = 1e-3


class ParityRun:
    """A comparison of an exported model's folder with the checkpoint's weights."""

    def __init__(
        self, spec: DecoderSpec, tensors: TensorReader, folder: Path, options: GraphOptions
    ) -> None:
        spec, tensors = with_rows(spec.within(options.max_context), tensors, options.drafted)
        self._spec, self._tensors, self._options = spec, tensors, options
        self._reference = Reference(spec, tensors)
        self._exported = Slices(folder)

    def compare(self, tokens: Sequence[int], on_step: OnStep) -> ParityFigures:
        """Read ``tokens``; ``on_step(done, total)`` runs after each layer and part of the head.

        Raises:
            ParityError: the fp32 graph does not compute what the reference does.

        """
        spec, worst = self._spec, 0.0
        steps = 2 * spec.layers + len(self._head_parts(len(tokens)))
        x = self._reference.embed(tokens)
        for layer in range(spec.layers):
            after = self._reference.layer(layer, x)
            worst = max(worst, self._fp32_error(layer, x, after))
            x = after
            on_step(layer + 1, steps)
        final = self._reference.final_norm(x)
        del x, after
        divergence = self.divergence(
            tokens, final, lambda done, total: on_step(spec.layers + done, spec.layers + total)
        )
        return divergence.result(worst)

    def divergence(self, tokens: Sequence[int], final: FloatArray, on_step: OnStep) -> Divergence:
        """Compare the exported model with what the source's head reads, ``[n, hidden]``."""
        spec, drafted = self._spec, np.array(self._options.drafted, np.int64)
        parts = self._head_parts(len(tokens))
        steps = spec.layers + len(parts)
        ids = np.array(tokens, np.int64)
        stream = self._first_stream(ids, _parts(spec.vocab_used, self._head_rows(len(tokens))))
        for layer in range(spec.layers):
            stream = self._exported_layer(layer, stream)
            on_step(layer + 1, steps)
        names = stream_names(spec, spec.layers)
        feeds = dict(zip(names, stream, strict=True)) | {"rows": np.arange(len(tokens))}
        flat = self._exported.run(["final.flat"], feeds)[0]
        size, out = (len(drafted), OWN_LOGITS) if len(drafted) else (spec.vocab_size, "logits")
        # Of a draft, the rows whose next token is one that it drafts.
        known = np.isin(ids[1:], drafted) if len(drafted) else np.ones(len(ids) - 1, np.bool_)
        own = np.searchsorted(drafted, ids[1:][known]) if len(drafted) else ids[1:]
        divergence = Divergence([tokens[0], *own.tolist()])
        for done, part in enumerate(parts, 1):
            expected = self._reference.head(final, part.start, part.stop)
            got = self._exported.head_rows(flat, size, part, out)
            divergence.add(expected[:-1][known], got[:-1][known], part.start)
            on_step(spec.layers + done, steps)
        return divergence

    def _head_rows(self, tokens: int) -> int:
        """Return the rows of a table over the vocabulary that are in memory at once."""
        return max(CHUNK_NUMBERS // max(self._spec.hidden, tokens), 1)

    def _head_parts(self, tokens: int) -> list[slice]:
        return _parts(len(self._options.drafted) or self._spec.vocab_used, self._head_rows(tokens))

    def _first_stream(self, ids: npt.NDArray[np.int64], parts: Sequence[slice]) -> list[FloatArray]:
        """Return the exported residual stream before the first layer."""
        first, *others = stream_names(self._spec, 0)
        embedded = self._embedded(ids, parts)
        places: dict[str, FloatArray | npt.NDArray[np.int64]] = {
            "position_ids": np.arange(len(ids))[None], "input_ids": ids[None], first: embedded,
        }  # fmt: skip
        return [embedded, *(self._exported.run(others, places) if others else ())]

    def _embedded(self, ids: npt.NDArray[np.int64], parts: Sequence[slice]) -> FloatArray:
        """Return the exported embedding of ``[n]`` ids, ``[1, n, hidden]``."""
        whole = np.empty((1, len(ids), self._spec.hidden), np.float32)
        for part in parts:
            here = (ids >= part.start) & (ids < part.stop)
            if here.any():
                found = self._exported.embed_rows(ids[None, here], self._spec.vocab_size, part)
                whole[:, here] = found
        return whole

    def _exported_layer(self, layer: int, stream: list[FloatArray]) -> list[FloatArray]:
        feeds = dict(zip(stream_names(self._spec, layer), stream, strict=True))
        after = stream_names(self._spec, layer + 1)
        new = [name for name in after if name not in feeds]
        given = layer_feeds(self._spec, layer, stream[0].shape[1], self._options.kv)
        feeds |= dict(zip(new, self._exported.run(new, feeds | given), strict=True))
        return [feeds[name] for name in after]

    def _fp32_error(self, layer: int, before: FloatArray, after: FloatArray) -> float:
        """Return the relative difference of one layer's output, emitted in fp32."""
        if self._options.weights == self._options.kv == "fp32":
            return 0.0  # the exported graph itself
        before, after = before[None, :FP32_TOKENS], after[None, :FP32_TOKENS]
        plain = dataclasses.replace(self._options, weights="fp32", kv="fp32", max_context=1024)
        with tempfile.TemporaryDirectory(prefix="edgedec-parity-") as name:
            folder = Path(name)
            with GraphWriter(folder) as graph:
                store = make_format(WeightForm("fp32"), graph, self._tensors)
                emitter = Emitter(GraphParts(self._spec, self._tensors, graph, store, plain))
                emitter.attention_inputs()
                outputs = emitter.layer(layer, "x", None)
                graph.save({})
            widths = {"x": self._spec.hidden, **self._spec.carried(layer)}
            parts = np.split(before, np.cumsum([*widths.values()])[:-1], axis=2)
            feeds = dict(zip(widths, parts, strict=True))
            feeds |= layer_feeds(self._spec, layer, before.shape[1], "fp32")
            got, branch = Slices(folder).run(outputs, feeds)
        after = after[..., : self._spec.hidden]
        return check_layer(layer, feeds["x"], got + branch, after, "fp32 graph", FP32_FLOOR)


def _parts(rows: int, most: int) -> list[slice]:
    return [slice(i, min(i + most, rows)) for i in range(0, rows, most)]


# -- an exported model's closeness to its source, in a word -------------------------------------

# From the exports of the pair that ships (2.2 M and 11.5 M parameters, which suffer more than
# larger models), on the built-in text. fp16 and int8: KL up to 0.0004 nats, the same best token at
# 98% of the positions or more, perplexity up to 1.002 times the source's. int4 with blocks of 32
# to 256: 0.040 to 0.081, 76% to 84%, up to 1.07 times. Good lies between the two, near the floor
# that 8 bits must keep; usable is what 4 bits reach. Exports that are neither but pass
# their format's floor are poor; those that fail it are refused.
GOOD = Floor(kl_nats=0.02, top1=0.90, perplexity_ratio=1.02)
USABLE = Floor(kl_nats=0.10, top1=0.75, perplexity_ratio=1.10)


def verdict(figures: Mapping[str, float]) -> str:
    """Return ``good``, ``usable`` or ``poor``, and the figures that prevent a better verdict.

    Args:
        figures: as ``Parity`` has them; figures that are missing or not finite give an empty text.

    """
    try:
        ratio = figures["perplexity"] / figures["perplexity_source"]
        kl_nats, top1 = figures["kl_nats"], figures["top1"]
    except (KeyError, ZeroDivisionError):
        return ""
    if not all(map(math.isfinite, (ratio, kl_nats, top1))):
        return ""
    short = _short_of(GOOD, kl_nats, top1, ratio)
    if not short:
        return "good"
    beyond = _short_of(USABLE, kl_nats, top1, ratio)
    if not beyond:
        return f"usable ({'; '.join(short)})"
    return f"poor ({'; '.join(beyond)}): more bits or smaller blocks are closer"


def _short_of(floor: Floor, kl_nats: float, top1: float, ratio: float) -> list[str]:
    """Return, in words, the figures in which an export exceeds a floor."""
    found = []
    if kl_nats > floor.kl_nats:
        found.append(f"KL {kl_nats:.2g} nats, over {floor.kl_nats:g}")
    if top1 < floor.top1:
        found.append(f"the best token is the source's at {top1:.1%}, under {floor.top1:.0%}")
    if ratio > floor.perplexity_ratio:
        found.append(f"perplexity {ratio:.2f} times the source's, over {floor.perplexity_ratio:g}")
    return found
