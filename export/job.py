"""A model to export and the result: the input and output of every format."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.options import ExportOptions
from edgedec.export.tensors import TensorReader
from edgedec.export.tokenizer import TokenizerContent
from edgedec.models.decoder import DecoderSpec


@dataclasses.dataclass(frozen=True, slots=True)
class ExportJob:
    """A model in one format.

    Attributes:
        role: ``target`` or ``draft``.
        format: what it is to become.
        checkpoint: where it comes from.
        spec: the decoder, with ``vocab_used`` cut to what the tokenizer knows.
        tensors: its canonical tensors.
        content: its tokenizer.
        columns: rows of the vocabulary that both models of a pair get where they share a
            tokenizer; at least ``spec.vocab_size``.
        weights: how they are to be stored, one of the format's own names.
        tokens: what parity and the scales of an int8 cache read.
        options: what was asked for.
        texts: what its matrices are rounded for; none for plain rounding.

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
    texts: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)

    @property
    def stage(self) -> str:
        """The stage's name in progress messages."""
        return self.role if len(self.options.formats) == 1 else f"{self.role} {self.format}"


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """A model in one format, on disk.

    Attributes:
        files: names in the job's folder, the main file first.
        kv: type of keys and values, as the format calls it.
        vocab_size: columns of its logits.
        errors: relative error of each quantised tensor.
        notes: what the user should know, a line each.

    """

    files: tuple[str, ...]
    kv: str
    vocab_size: int
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


# Figures of a comparison with the source, by name.
Figures = Mapping[str, Any]
