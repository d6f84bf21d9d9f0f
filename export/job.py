"""A model to export and the result: the input and output of every format."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.options import ExportOptions
from edgedec.export.tensors import PaddedTensors, TensorReader, blocks_of
from edgedec.export.tokenizer import TokenizerContent
from edgedec.models.decoder import DecoderSpec

_PLAIN_BLOCK = 32
# Blocks of 64 are read no faster than those of 32.
_LARGE_BLOCK = 128
_MOST_PADDING = 1 / 16


@dataclasses.dataclass(frozen=True, slots=True)
class ExportJob:
    """A model in one format.

    Attributes:
        role: ``target`` or ``draft``.
        spec: the decoder, with ``vocab_used`` limited to the tokenizer's ids.
        columns: vocabulary rows of both models of a pair if they share a tokenizer; at least
            ``spec.vocab_size``.
        weights: how weights are stored, one of the format's own names.
        tokens: the text that parity and the scales of an int8 cache use.
        taps: layers of which the target shows the residual streams to its head.
        texts: texts for calibrated rounding; empty for rounding to nearest.
        heldout: texts to measure on what rounding loses, which it does not see; empty where nothing
            is chosen by it.
        drafted: of a draft in ONNX, the tokens that its head keeps, ascending; empty for all.
        notes: notes for the user, one line each, from before it is written.

    """

    role: str
    format: str
    checkpoint: Checkpoint
    spec: DecoderSpec
    tensors: TensorReader
    content: TokenizerContent
    columns: int
    weights: str
    tokens: tuple[int, ...] = dataclasses.field(repr=False)
    options: ExportOptions
    taps: tuple[int, ...] = ()
    texts: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)
    heldout: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)
    drafted: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The stage's name in progress messages."""
        return self.role if len(self.options.formats) == 1 else f"{self.role} {self.format}"

    def padded(self) -> tuple[DecoderSpec, TensorReader]:
        """Return the decoder padded to the vocabulary rows of the other model of the pair."""
        wide = dataclasses.replace(self.spec, vocab_size=self.columns)
        rows = {wide.name(role): self.columns for role in ("embed", "head")}
        return wide, PaddedTensors(self.tensors, rows)

    @property
    def held(self) -> bool:
        """Whether most matrices are copied, since the source has them in the blocks of int4."""
        if self.weights not in ("auto", "int4") or self.options.block_size not in (
            None,
            _PLAIN_BLOCK,
        ):
            return False
        head = {self.spec.name("embed"), self.spec.name("head")}
        sizes = {
            name: math.prod(shape)
            for name, shape in self.spec.tensors().items()
            if len(shape) > 1 and name not in head
        }
        there = (blocks_of(self.tensors, name, 4, _PLAIN_BLOCK) for name in sizes)
        copied = sum(size for size, block in zip(sizes.values(), there, strict=True) if block)
        return 2 * copied > sum(sizes.values())

    def holds(self, role: str, bits: int) -> bool:
        """Return whether the source has a matrix in blocks of so many bits as an export's."""
        return blocks_of(self.tensors, self.spec.name(role), bits, _PLAIN_BLOCK) is not None

    @property
    def block_size(self) -> int:
        """Number of quantised weights of an ONNX graph that share a scale.

        Calibration compensates for large blocks, which are read faster. Blocks are smaller if
        padding the last one of a row would cost what they save, and if a single row's products must
        equal those of several rows, since kernels of large blocks compute single rows differently.
        """
        if self.options.block_size is not None:
            return self.options.block_size
        spec = self.spec
        # Blocks must fit the width of experts, whose kernels were measured with small ones only.
        if not self.texts or self.options.batch_invariant or spec.experts is not None:
            return _PLAIN_BLOCK
        widths = {spec.hidden}.union(
            *({at.ffn, at.q_size} for at in map(spec.at, range(spec.layers)))
        )
        fits = all(-width % _LARGE_BLOCK <= _MOST_PADDING * width for width in widths)
        return _LARGE_BLOCK if fits else _PLAIN_BLOCK


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """A model in one format, on disk.

    Attributes:
        files: names in the job's folder, the main file first.
        kv: type of keys and values, as the format calls it.
        vocab_size: columns of its logits.
        errors: relative error of each quantised tensor.
        notes: notes for the user, one line each.
        max_context: its context length in tokens; None is the decoder's context.
        weights: how they are stored, where the job's do not say it.

    """

    files: tuple[str, ...]
    kv: str
    vocab_size: int
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    max_context: int | None = None
    weights: str | None = None


# Figures of a comparison with the source, by name.
Figures = Mapping[str, Any]
