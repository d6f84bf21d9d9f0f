"""The options and the report of an export; imports no optional package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec._support.options import described, option
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
# Titles of groups of the help page.
_COREML, _STATIC = "CoreML only", "Graphs of static shape, for NPUs"


@described
@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        target: a Hugging Face checkpoint folder.
        out: the bundle's folder; must not exist unless ``overwrite``.

    """

    target: Path
    out: Path
    # fmt: off
    draft: Path | None = option(
        None, "A smaller model, best with the same tokenizer.", kind="folder", metavar="DRAFT",
        takes="str | Path | None",
    )
    head: Path | None = option(
        None, "A head that drafts from the target's states (EAGLE-3, or Gemma 4's assistant): its"
        " checkpoint's folder.",
        kind="folder", metavar="HEAD", takes="str | Path | None",
    )
    mtp: bool = option(
        True, "Export the head inside TARGET's own checkpoint, if it has one (an MTP layer of"
        " MiMo or Qwen3.5).",
        shows=True,
    )
    formats: tuple[str, ...] = option(
        ("onnx",), "onnx (ONNX Runtime), gguf (llama.cpp), coreml (macOS and iOS; never yet run on"
        " a Mac), or several: onnx,gguf.", name="format", metavar="NAMES", shows=True,
        takes="str | Sequence[str]",
    )
    layout: str = option(
        "bundle", "bundle, or genai: a folder with the target alone that onnxruntime-genai opens.",
        choices=("bundle", "genai"), shows=True,
    )
    weights: str | None = option(
        None, "How weights are stored: auto (default), int4, int8, fp16 or fp32 in onnx. auto:"
        " int4, and int8 for the matrices that need it to stay within --max-kl. f32, f16, bf16,"
        " q8_0, q6_k, q5_k_m, q4_k_m, q4_0 and more in gguf (q4_0); fp16, int8, int4 or lut4"
        " (palettes) in coreml (int4). With several formats: onnx=int4,gguf=q4_k_m. On ARM without"
        " dot products (Raspberry Pi 4) a pass in onnx's int8 has three times the instructions of"
        " int4.", metavar="NAME",
    )
    max_kl: float = option(
        MAX_KL, "With weights auto: the divergence from the source, in nats per token on texts that"
        " the target writes, that int4 may add; the draft's may be four times as large. Smaller is"
        " closer, with more bytes.", metavar="NATS", least=0.001, shows=True,
    )
    draft_weights: str | None = option(
        None, "How the draft's weights are stored; default: as --weights.", metavar="NAME",
    )
    draft_vocab: int | str | None = option(
        None, "Tokens that the head of an ONNX draft keeps, which is then read faster; others are"
        " never drafted, and the text stays the same. Default: where the head is more than a third"
        " of what the draft reads, three quarters of them and at most 32768 in an export that"
        " calibrates; else full. The same goes for the head inside TARGET.", metavar="N|full",
        kind="text",
    )
    kv: str = option(
        "fp32", "Type of an ONNX graph's keys and values; for a GGUF file it is chosen at run"
        " time.", choices=("fp32", "int8"), shows=True,
    )
    block_size: int | None = option(
        None, "Weights of an ONNX graph that share a scale: 16, 32, 64, 128 or 256; default: 128 if"
        " int4 is calibrated (64 or 32 if 128 does not divide the model's widths), 32 otherwise,"
        " for mixtures of experts and with --batch-invariant.",
    )
    form: str | None = option(
        None, "Form of a CoreML program: slice for GPU and CPU, blend for the Neural Engine;"
        " default: slice for the target, blend for the draft.", group=_COREML,
        choices=("slice", "blend"),
    )
    rows: tuple[int, ...] | None = option(
        None, "Widths of a CoreML program's passes; default: 1,4,8,16.", group=_COREML, kind="text",
        metavar="WIDTHS", takes="str | Sequence[int] | None",
    )
    static_rows: tuple[int, ...] | None = option(
        None, "Write ONNX graphs of static shape with standard operators, as compilers for NPUs"
        " need them, for these widths of passes, such as 1,4,8,16.", group=_STATIC, kind="text",
        metavar="WIDTHS", takes="str | Sequence[int] | None",
    )
    static_context: int | None = option(
        None, "Cache size of such graphs in tokens; default: the context, at most 4096.",
        group=_STATIC, metavar="TOKENS",
    )
    static_activations: str | None = option(
        None, "With --weights int8: such graphs multiply integers, in ranges measured on the texts"
        " of --calibration, as Qualcomm's NPU needs them; int16 is closer to the source. Outlier"
        " channels are handled separately.", group=_STATIC, choices=("int8", "int16"),
    )
    batch_invariant: bool = option(
        False, "Make the ONNX files batch-invariant by default: the text never depends on drafts.",
    )
    max_context: int | None = option(None, "Default: the model's own limit.", metavar="TOKENS")
    parity: bool = option(True, "Compare with the source and fail below the floor.", shows=True)
    parity_text: Path | None = option(
        None, "Text to compare on; default: a short one that is built in.", kind="file",
        metavar="FILE", takes="str | Path | None",
    )
    calibration: str = option(
        "self", "The same by name: self (default) calibrates the rounding of an int4 ONNX graph,"
        " and the importance matrix of a GGUF of 6 bits or fewer; none rounds each weight to"
        " nearest.",
        text="``self`` calibrates on texts that the target generates: the rounding of an int4 ONNX"
        " graph, the ranges of integer activations, and the importance matrix of a GGUF of"
        " 6 bits or fewer; ``none`` rounds each weight to nearest.", choices=("self", "none"),
    )
    calibration_text: Path | None = option(
        None, "Calibrate on this text instead of the target's own.", kind="file", metavar="FILE",
        takes="str | Path | None",
    )
    imatrix_text: Path | None = option(
        None, "Text for the importance matrix of a GGUF file; default: that of --calibration.",
        group="GGUF only", kind="file", metavar="FILE", takes="str | Path | None",
    )
    licence: str | None = option(
        None, "Licence of both models; default: what the checkpoint states.",
    )
    overwrite: bool = option(False, "Replace DIR if it is a bundle.")
    # fmt: on


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
