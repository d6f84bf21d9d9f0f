"""The options and the report of an export; imports no optional package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.errors import InputError

# Stage ("target", "draft", "parity of the target", ...), work done, total work (in any unit).
Progress = Callable[[str, int, int], None]

# Default widths of passes in formats of fixed widths.
ROWS = (1, 4, 8, 16)
_MOST_ROWS = 256
# Largest divergence of ``auto`` weights, in nats per token.
MAX_KL = 0.05
# A draft's may be so many times as large: it costs acceptance only.
DRAFTS = 4
# Of ``draft_vocab``: all tokens.
FULL = "full"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        target: a Hugging Face checkpoint folder.
        out: the bundle's folder; must not exist unless ``overwrite``.
        draft: the folder of a smaller model, or None. It may have another tokenizer, which
            lowers acceptance.
        head: the folder of a head that drafts from the states of the target (EAGLE-3), or None;
            for onnx.
        mtp: export the head that the target's checkpoint carries (MiMo's MTP layer), if it does and
            no other is given; for onnx.
        formats: ``onnx`` (ONNX Runtime), ``onnx-static`` (the same in graphs of static shape),
            ``gguf`` (llama.cpp), ``coreml``, or several.
        weights: how weights are stored: ``int4``, say, for a single format, or one per format, as
            in ``onnx=int4,gguf=q4_0``. None takes each format's default. ``auto``, that of onnx,
            stores each matrix in int4 or int8, as few in int8 as ``max_kl`` takes.
        max_kl: largest divergence of ``auto`` weights from their source on texts that the target
            writes, in nats per token; a draft's may be four times as large.
        draft_weights: the same for the draft; None is ``weights``.
        draft_vocab: how many tokens the head of a draft in ONNX keeps: a number, or ``full`` for
            all. None, in an export that calibrates, is three quarters and at most 32768 where the
            head is more than a third of what a pass of the draft reads, else all. Others are never
            drafted; the text does not depend on it. A number is also for the head that the target's
            checkpoint carries.
        kv: ``fp32`` or ``int8``: type of an ONNX graph's keys and values.
        block_size: number of weights that share a scale, in an ONNX graph or an int4 CoreML
            program: 16, 32, 64, 128 or 256. None is 128 if int4 is calibrated (64 or 32 if 128 does
            not divide the model's widths); 32 otherwise, for mixtures of experts and with
            ``batch_invariant``.
        form: form of a CoreML program: ``slice`` or ``blend``; None is ``slice`` for the target,
            which a GPU runs, and ``blend`` for the draft, which is meant for a Neural Engine.
        rows: widths of a CoreML program's passes, ascending from 1.
        static_rows: widths of ONNX graphs of static shape, ascending from 1.
        static_context: size of their cache in tokens; None is the context, at most 4096.
        static_activations: ``int8`` or ``int16``: their products multiply integers, in ranges
            measured on the texts of ``calibration``; with int8 weights. None multiplies in fp32.
        batch_invariant: the target's attention can be padded separately, so that by default a
            seed's text does not depend on the drafts, at less cost; for onnx.
        max_context: context length in tokens; None is the model's own limit.
        parity: compare the result with its source, and fail below the floor.
        parity_text: a file with text to compare on; None takes a short built-in text.
        calibration: ``self`` calibrates on texts that the target generates: the rounding of an int4
            ONNX graph, the ranges of integer activations, and the importance matrix of a quantised
            GGUF; ``none`` rounds each weight to nearest.
        calibration_text: a file with text to calibrate on instead.
        imatrix_text: a file with text for the importance matrix of a GGUF; None takes the texts of
            ``calibration``, or no importance matrix.
        licence: of the target and the draft; None takes the one in the checkpoint.
        overwrite: replace ``out`` if it is a bundle.

    """

    target: Path
    out: Path
    draft: Path | None = None
    head: Path | None = None
    mtp: bool = True
    formats: tuple[str, ...] = ("onnx",)
    weights: str | None = None
    max_kl: float = MAX_KL
    draft_weights: str | None = None
    draft_vocab: int | str | None = None
    kv: str = "fp32"
    block_size: int | None = None
    form: str | None = None
    rows: tuple[int, ...] | None = None
    static_rows: tuple[int, ...] | None = None
    static_context: int | None = None
    static_activations: str | None = None
    batch_invariant: bool = False
    max_context: int | None = None
    parity: bool = True
    parity_text: Path | None = None
    calibration: str = "self"
    calibration_text: Path | None = None
    imatrix_text: Path | None = None
    licence: str | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Figures of one exported model in one format.

    Attributes:
        role: ``target`` or ``draft``.
        name: name of the checkpoint.
        architecture: its ``model_type``.
        parameters: number of parameters of the checkpoint.
        size_bytes: size of the exported files.
        format, weights, kv: as in the manifest.
        files: their paths in the bundle, the main file first.
        columns: columns of its logits.
        vocab_used: number of columns that are tokens.
        errors: relative error of each quantised tensor, root of squared error over squared
            weights.
        notes: deviations from the request, one line each.
        max_context: its context length in tokens; None is the decoder's context.
        parity: figures of the comparison with the source; empty if it was left out.
        draft_vocab: number of tokens that it can draft; None for all.

    """

    role: str
    name: str
    architecture: str
    parameters: int
    size_bytes: int
    format: str
    weights: str
    kv: str
    files: tuple[str, ...]
    columns: int
    vocab_used: int
    errors: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    max_context: int | None = None
    parity: Mapping[str, Any] = field(default_factory=dict)
    draft_vocab: int | None = None

    @property
    def worst(self) -> tuple[str, float] | None:
        """The quantised tensor with the largest error, if any was quantised."""
        return max(self.errors.items(), key=lambda item: item[1], default=None)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """A finished export.

    Attributes:
        path: the bundle.
        size_bytes: size of all its files.
        models: reports by model, target first.
        seconds: time that the export took.

    """

    path: Path
    size_bytes: int
    models: tuple[ModelReport, ...]
    seconds: float


def rounding(calibration: str) -> str:
    """Return how weights of four bits are rounded, and the option for the other way."""
    if calibration == "none":
        return "weights are rounded to nearest; --calibrated takes minutes and is closer or smaller"
    return "weights are calibrated, which takes minutes; --no-calibrated is faster"


def parse_rows(text: str, option: str = "--rows") -> tuple[int, ...]:
    """Return widths from a list such as ``1,4,8``, given as ``option``; or InputError."""
    try:
        rows = tuple(int(part) for part in text.split(","))
    except ValueError:
        rows = ()
    if not rows or rows[0] != 1 or list(rows) != sorted(set(rows)) or rows[-1] > _MOST_ROWS:
        raise InputError(
            f"{option} {text}: expected widths that ascend from 1, at most {_MOST_ROWS}, as in"
            f" {','.join(map(str, ROWS))}"
        )
    return rows


def parse_draft_vocab(given: int | str | None) -> int | str | None:
    """Return the number of a draft's tokens, ``full``, or None for the default; or InputError."""
    if given in (None, FULL):
        return given
    if given == "auto":
        raise InputError("--draft-vocab auto was removed: leave it out, or give a number or full")
    try:
        count = int(given)
    except ValueError:
        count = 0
    if count < 1:
        raise InputError(
            f"--draft-vocab {given}: expected a number of tokens, such as 32768, or {FULL}"
        )
    return count
