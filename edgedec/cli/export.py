"""``edgedec export``: from checkpoints to a bundle."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from edgedec._support.model_path import is_gguf
from edgedec._support.options import declared
from edgedec.cli import _help, _library, _options, _output, _progress, _terminal
from edgedec.cli._flags import flags
from edgedec.cli._output import size, table
from edgedec.errors import InputError
from edgedec.export.options import ExportOptions

if TYPE_CHECKING:
    from edgedec.export import ExportReport

FOLDER = click.Path(path_type=Path)
_DEFAULT_FORMAT = "onnx"
_OPTIONS = declared(ExportOptions)


class _Export(_help.GroupedCommand):
    shown: ClassVar = {
        "Options": ("out", "draft", "head", "mtp", "weights", "calibrated", "formats",
                    "max_context", "overwrite"),
        "Output": ("verbose", "as_json"),
    }  # fmt: skip
    rare: ClassVar = {
        "Options": ("exporter", *(one.field for one in _OPTIONS.values() if not one.option.group))
    }


@click.command(cls=_Export)
@click.argument("target", type=FOLDER)
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    required=True,
    metavar="DIR",
    help="Folder of the bundle; it is created only when the bundle is complete.",
)
@click.option(
    "--exporter",
    type=click.Choice(["native", "optimum"]),
    default="native",
    show_default=True,
    help="optimum: any architecture that optimum-onnx supports, through torch, as fp32 or int8;"
    " the same as --format optimum.",
)
@_options.options(flags(_OPTIONS))
@_library.CALIBRATED
@click.option("-v", "--verbose", is_flag=True, help="Show the figures of the comparison as well.")
@_options.as_json
def command(
    formats: str,
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
    from edgedec.export.options import rounding
    from edgedec.functions import convert

    format = _format(formats, exporter)
    calibration = _calibration(calibrated, calibration)
    what = f"making {chosen['target']} into a bundle"
    # Weights of a GGUF file may be in the blocks of int4 already, which the report says.
    rounds = format != "optimum" and not is_gguf(chosen["target"])
    stored = chosen["weights"] or "auto"
    if ("4" in stored or "auto" in stored) and rounds:
        what += f": {rounding(calibration)}"
    with _terminal.ended_by_sigterm(), _progress.stages() as listen:
        progress = _progress.announced(what, listen)
        given = {name: value for name, value in chosen.items() if value is not None}
        report = convert(format=format, calibration=calibration, progress=progress, **given)
    if as_json:
        _output.print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        _print(report, figures=verbose)
        if chosen["layout"] == "bundle":
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
