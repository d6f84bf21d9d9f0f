"""ONNX graphs of static shape and standard operators: one for each width, over shared weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.errors import InputError
from edgedec.export import formats
from edgedec.export.balancing import balanced
from edgedec.export.calibrated import of_job
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.onnx_static import StaticOptions, check_decoder, files, write_graphs
from edgedec.export.onnx_static.parity import compare
from edgedec.export.onnx_static.weights import FORMAT
from edgedec.export.options import ROWS, ExportOptions, Progress
from edgedec.export.quantize import FORMATS
from edgedec.export.ranges import Ranges, measured
from edgedec.export.tensors import CountedTensors, TensorReader
from edgedec.export.weighed import head_bits
from edgedec.models.decoder import DecoderSpec

WEIGHTS = FORMATS
DEFAULT_WEIGHTS = "int4"
CALIBRATED = ("int4",)
PACKAGES = ("numpy", "onnx", "onnxruntime")
_KV = "fp32"
_BITS = {"int8": 8, "int16": 16}
_INTEGER = "int8"
# Every pass reads the whole cache, so the default context is limited.
_CONTEXT = 4096


def check(options: ExportOptions) -> None:
    """See ``Exporter``."""
    if options.static_activations is not None:
        _check_activations(options, options.static_activations)


def _check_activations(options: ExportOptions, activations: str) -> None:
    if activations not in _BITS:
        raise InputError(f"--static-activations {activations}: expected {' or '.join(_BITS)}")
    given = [("--weights", options.weights or DEFAULT_WEIGHTS)]
    if options.draft is not None and options.draft_weights is not None:
        given.append(("--draft-weights", options.draft_weights))
    for option, text in given:
        weights = formats.weights_of(FORMAT, text, option, options.formats) or DEFAULT_WEIGHTS
        if weights != _INTEGER:
            raise InputError(
                f"--static-activations {activations} with {option} {weights}: integer products need"
                f" one scale per channel: expected {option} {_INTEGER}"
            )
    if options.calibration == "none" and options.calibration_text is None:
        raise InputError(
            f"--static-activations {activations} with --calibration none: their ranges are measured"
            " on texts: leave it out, or give --calibration-text"
        )


def check_job(job: ExportJob) -> None:
    """See ``formats.check_job``."""
    job.spec.check_attends(FORMAT)
    spec, _ = _cut(job)
    check_decoder(spec, static_options(job, spec))


def measures(options: ExportOptions) -> bool:
    """Return whether ranges are measured on texts."""
    return options.static_activations is not None


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    spec, tensors = _cut(job)
    graph, notes = static_options(job, spec), []
    ranges = _ranges(job, spec, tensors, progress)
    if ranges is not None:
        notes.append(_note(graph, ranges))
    elif job.texts:
        form = graph.form
        tensors, moved = balanced(spec, tensors, job.texts, form.bits, form.block_size)
        if moved:
            notes.append(f"outliers balanced at {moved} places")
        graph = dataclasses.replace(graph, head_bits=head_bits(spec, form))
    calibrated = job.texts and ranges is None
    rounding = of_job(job, spec, tensors, graph.form.bits, progress) if calibrated else None
    total = spec.parameters
    counted = CountedTensors(tensors, lambda done: progress(job.stage, min(done, total), total))
    errors = write_graphs(spec, counted, folder, graph, rounding, ranges)
    progress(job.stage, total, total)
    notes += rounding.notes if rounding else []
    written = files(spec, graph)
    return Exported(written, _KV, spec.vocab_size, errors, tuple(notes), spec.max_context)


def parity(job: ExportJob, folder: Path, progress: Progress) -> Figures:
    """See ``Exporter``."""
    spec, tensors = _cut(job)
    stage = f"{job.stage} parity"
    found = compare(
        spec, tensors, folder, static_options(job, spec), job.tokens[: spec.max_context],
        lambda done, total: progress(stage, done, total),
    )  # fmt: skip
    found.check(job.role, job.weights, activations=job.options.static_activations)
    return dataclasses.asdict(found)


def static_options(job: ExportJob, spec: DecoderSpec) -> StaticOptions:
    """Return the options of a job's graphs."""
    options = job.options
    return StaticOptions(
        name=job.checkpoint.name,
        eos_ids=job.checkpoint.eos_ids,
        weights=job.weights,
        block_size=job.block_size,
        rows=options.static_rows or tuple(rows for rows in ROWS if rows <= spec.max_context),
        activations=options.static_activations,
    )


def _ranges(
    job: ExportJob, spec: DecoderSpec, tensors: TensorReader, progress: Progress
) -> Ranges | None:
    """Return the ranges of integer activations on the job's texts; None without any."""
    if job.options.static_activations is None:
        return None
    if spec.experts is not None:
        return Ranges(0, {})  # the emitter refuses this decoder
    bits, stage = _BITS[job.options.static_activations], f"{job.stage} calibration"
    return measured(
        spec, tensors, job.texts, bits, lambda done, layers: progress(stage, done, layers)
    )


def _note(options: StaticOptions, ranges: Ranges) -> str:
    kept = [len(each.outliers) for each in ranges.products.values() if each.outliers]
    return (
        f"activations in {options.activations}; {sum(kept)} outlier channels of {len(kept)}"
        f" matrices out of {len(ranges.products)} in floating point"
    )


def _cut(job: ExportJob) -> tuple[DecoderSpec, TensorReader]:
    """Return the decoder with its context limited to what the cache holds."""
    spec, tensors = job.padded()
    return spec.within(job.options.static_context or min(_CONTEXT, spec.max_context)), tensors
