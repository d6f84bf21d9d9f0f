"""``edgedec export``: from checkpoints to a bundle."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from edgedec.cli import _help, _library, _options, _progress, _terminal
from edgedec.cli._values import FILE as TEXT
from edgedec.errors import InputError

if TYPE_CHECKING:
    from edgedec.export import ExportReport

FOLDER = click.Path(path_type=Path)
_DEFAULT_FORMAT = "onnx"


class _Export(_help.GroupedCommand):
    shown: ClassVar = {
        "Options": ("out", "draft", "head", "mtp", "weights", "calibrated", "format_names",
                    "max_context", "overwrite"),
        "Output": ("verbose", "as_json"),
    }  # fmt: skip
    rare: ClassVar = {
        "Options": ("max_kl", "calibration", "draft_weights", "draft_vocab", "kv", "block_size",
                    "batch_invariant", "calibration_text", "parity", "parity_text", "licence",
                    "exporter"),
        "GGUF only": ("imatrix_text",),
        "CoreML only": ("form", "rows"),
        "Graphs of static shape, for NPUs": (
            "static_rows", "static_context", "static_activations",
        ),
    }  # fmt: skip


@click.command(cls=_Export)
@click.argument("target", type=FOLDER)
@click.option(
    "--draft",
    type=FOLDER,
    metavar="DRAFT",
    help="A smaller model, best with the same tokenizer.",
)
@click.option(
    "--head",
    type=FOLDER,
    metavar="HEAD",
    help="A head that drafts from the target's states (EAGLE-3): its checkpoint's folder.",
)
@click.option(
    "--mtp/--no-mtp",
    default=True,
    show_default=True,
    help="Export the head inside TARGET's own checkpoint, if it has one (MiMo's MTP layer).",
)
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    required=True,
    metavar="DIR",
    help="Folder of the bundle; it is created only when the bundle is complete.",
)
@click.option(
    "--format",
    "format_names",
    default=_DEFAULT_FORMAT,
    show_default=True,
    metavar="NAMES",
    help="onnx (ONNX Runtime), gguf (llama.cpp), coreml (macOS and iOS; never yet run on a Mac), or"
    " several: onnx,gguf.",
)
@click.option(
    "--exporter",
    type=click.Choice(["native", "optimum"]),
    default="native",
    show_default=True,
    help="optimum: any architecture that optimum-onnx supports, through torch, as fp32 or int8;"
    " the same as --format optimum.",
)
@click.option(
    "--weights",
    metavar="NAME",
    help="How weights are stored: auto (default), int4, int8, fp16 or fp32 in onnx. auto: int4, and"
    " int8 for the matrices that need it to stay within --max-kl. f32, f16,"
    " bf16, q8_0, q6_k, q5_k_m, q4_k_m, q4_0 and more in gguf (q4_0); fp16, int8, int4 or lut4"
    " (palettes) in coreml (int4). With several formats: onnx=int4,gguf=q4_k_m. On ARM without dot"
    " products (Raspberry Pi 4) a pass in onnx's int8 has three times the instructions of int4.",
)
@click.option(
    "--max-kl",
    type=click.FloatRange(min=0.001),
    default=0.05,
    show_default=True,
    metavar="NATS",
    help="With weights auto: the divergence from the source, in nats per token on texts that the"
    " target writes, that int4 may add; the draft's may be four times as large. Smaller is closer,"
    " with more bytes.",
)
@click.option(
    "--draft-weights",
    metavar="NAME",
    help="How the draft's weights are stored; default: as --weights.",
)
@click.option(
    "--draft-vocab",
    metavar="N|full",
    help="Tokens that the head of an ONNX draft keeps, which is then read faster; others are never"
    " drafted, and the text stays the same. Default: where the head is more than a third of what"
    " the draft reads, three quarters of them and at most 32768 in an export that calibrates; else"
    " full. A number is also for the head inside TARGET.",
)
@click.option(
    "--kv",
    type=click.Choice(["fp32", "int8"]),
    default="fp32",
    show_default=True,
    help="Type of an ONNX graph's keys and values; for a GGUF file it is chosen at run time.",
)
@click.option(
    "--block-size",
    type=int,
    help="Weights of an ONNX graph that share a scale: 16, 32, 64, 128 or 256; default: 128 if int4"
    " is calibrated (64 or 32 if 128 does not divide the model's widths), 32 otherwise, for"
    " mixtures of experts and with --batch-invariant.",
)
@click.option(
    "--form",
    type=click.Choice(["slice", "blend"]),
    help="Form of a CoreML program: slice for GPU and CPU, blend for the Neural Engine; default:"
    " slice for the target, blend for the draft.",
)
@click.option(
    "--rows",
    metavar="WIDTHS",
    help="Widths of a CoreML program's passes; default: 1,4,8,16.",
)
@click.option(
    "--static-rows",
    metavar="WIDTHS",
    help="Write ONNX graphs of static shape with standard operators, as compilers for NPUs need"
    " them, for these widths of passes, such as 1,4,8,16.",
)
@click.option(
    "--static-context",
    type=int,
    metavar="TOKENS",
    help="Cache size of such graphs in tokens; default: the context, at most 4096.",
)
@click.option(
    "--static-activations",
    type=click.Choice(["int8", "int16"]),
    help="With --weights int8: such graphs multiply integers, in ranges measured on the texts of"
    " --calibration, as Qualcomm's NPU needs them; int16 is closer to the source. Outlier channels"
    " are handled separately.",
)
@click.option(
    "--batch-invariant",
    is_flag=True,
    help="Make the ONNX files batch-invariant by default: the text never depends on drafts.",
)
@click.option("--max-context", type=int, metavar="TOKENS", help="Default: the model's own limit.")
@click.option(
    "--parity/--no-parity",
    default=True,
    show_default=True,
    help="Compare with the source and fail below the floor.",
)
@click.option(
    "--parity-text",
    type=TEXT,
    metavar="FILE",
    help="Text to compare on; default: a short one that is built in.",
)
@_library.CALIBRATED
@click.option(
    "--calibration",
    type=click.Choice(["self", "none"]),
    help="The same by name: self (default) calibrates the rounding of an int4 ONNX graph, and the"
    " importance matrix of a quantised GGUF; none rounds each weight to nearest.",
)
@click.option(
    "--calibration-text",
    type=TEXT,
    metavar="FILE",
    help="Calibrate on this text instead of the target's own.",
)
@click.option(
    "--imatrix-text",
    type=TEXT,
    metavar="FILE",
    help="Text for the importance matrix of a GGUF file; default: that of --calibration.",
)
@click.option("--licence", help="Licence of both models; default: what the checkpoint states.")
@click.option("--overwrite", is_flag=True, help="Replace DIR if it is a bundle.")
@click.option("-v", "--verbose", is_flag=True, help="Show the figures of the comparison as well.")
@_options.as_json
def command(
    format_names: str,
    exporter: str,
    verbose: bool,
    as_json: bool,
    calibrated: bool | None,
    calibration: str | None,
    **chosen: Any,
) -> None:
    """Make a bundle from a target and a draft.

    TARGET and DRAFT are Hugging Face folders, or GGUF files of the families of docs/models.md: then
    weights are those of the file, and blocks of q4_0 stay as they are in int4, those of q8_0, q5_0
    and iq4_nl in int8. Needs the extra `export` (see `edgedec doctor`), for
    gguf also the extra `gguf`. Only --exporter optimum needs torch (extra `optimum`).

    \b
    edgedec export ./Qwen3-0.6B --out ./qwen
    edgedec export ./Llama-3-8B --draft ./Llama-3-1B --out ./llama --kv int8
    edgedec export ./model --out ./int8 --weights int8 --parity-text sample.txt
    edgedec export ./model-q4_0.gguf --out ./b
    edgedec export ./model --out ./b --format onnx,gguf --weights gguf=q4_k_m
    edgedec export ./Llama-3-8B --out ./mac --format coreml --max-context 4096
    edgedec export ./model --out ./npu --static-rows 1,4,8 --static-context 2048
    edgedec export ./model --out ./htp --weights int8 --static-activations int16
    edgedec export ./bloom-560m --out ./bloom --exporter optimum
    """  # fmt: skip
    from edgedec._support.model_path import is_gguf
    from edgedec.cli import _output
    from edgedec.export.options import rounding
    from edgedec.functions import convert

    format = _format(format_names, exporter)
    calibration = _calibration(calibrated, calibration)
    what = f"making {chosen['target']} into a bundle"
    # Weights of a GGUF file may be in the blocks of int4 already, which the report says.
    rounds = format != "optimum" and not is_gguf(chosen["target"])
    stored = chosen["weights"] or "auto"
    if ("4" in stored or "auto" in stored) and rounds:
        what += f": {rounding(calibration)}"
    with _terminal.ended_by_sigterm(), _progress.stages() as listen:
        progress = _progress.announced(what, listen)
        report = convert(format=format, calibration=calibration, progress=progress, **chosen)
    if as_json:
        _output.print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        _print(report, figures=verbose)
        _library.suggest(report.path, report.path)


def _calibration(calibrated: bool | None, calibration: str | None) -> str:
    """Return the value of --calibration, which --calibrated and --no-calibrated stand for."""
    if calibrated is None:
        return calibration or "self"
    meant = "self" if calibrated else "none"
    if calibration not in (None, meant):
        flag = "--calibrated" if calibrated else "--no-calibrated"
        raise click.UsageError(f"{flag} is --calibration {meant}: leave one of them out")
    return meant


def _format(names: str, exporter: str) -> str:
    if exporter == "optimum" and names not in (_DEFAULT_FORMAT, "optimum"):
        raise InputError(f"--exporter optimum writes its own format: leave --format {names} out")
    return "optimum" if exporter == "optimum" else names


# What a closeness to the source means; see ``edgedec.export.parity.verdict``.
_CLOSENESS = {
    "good": "close to its source, whose texts are hardly to be told from its own",
    "usable": "close enough to its source for most uses",
    "poor": "far from its source: more bits or smaller blocks are closer",
    "": "not compared with its source",
}


def _print(report: ExportReport, *, figures: bool) -> None:
    from edgedec.cli import _output
    from edgedec.cli._output import size, table
    from edgedec.export.parity import verdict

    rows = []
    for model in report.models:
        text = f"{model.name} ({model.architecture}), {model.parameters / 1e6:.1f} M parameters, "
        kind = f"{model.format} {model.weights}, "
        rows.append((model.role, text + kind + size(model.size_bytes)))
        rows.extend(("", note) for note in model.notes)
        found = verdict(model.parity)
        whole = model.role != "head"
        if whole:
            rows.append(("", _CLOSENESS[found.partition(" ")[0]]))
        elif (right := model.parity.get("agreement_1")) is not None:
            rows.append(("", f"its first choice is the target's {right:.0%} of the time"))
        if figures and model.worst is not None:
            rows.append(("", f"largest tensor error {model.worst[1]:.2%} ({model.worst[0]})"))
        if figures and model.parity:
            rows.append(("", f"parity: {_output.figures(model.parity)}"))
        if figures and model.parity and whole:
            rows.append(("", f"closeness to its source: {found or 'unknown'}"))
    rows.append(("bundle", f"{report.path}, {size(report.size_bytes)}, {report.seconds:.1f} s"))
    table(rows)
