"""ONNX graphs of fixed shape and standard operators: one for each width, over shared weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.errors import InputError
from edgedec.export.balancing import balanced
from edgedec.export.calibrated import of_job
from edgedec.export.formats.onnx import head_bits
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.onnx_static import StaticOptions, files, write_graphs
from edgedec.export.onnx_static.parity import compare
from edgedec.export.options import ROWS, ExportOptions, Progress
from edgedec.export.quantize import FORMATS
from edgedec.export.tensors import CountedTensors, TensorReader
from edgedec.models.decoder import DecoderSpec

WEIGHTS = FORMATS
DEFAULT_WEIGHTS = "int4"
CALIBRATED = ("int4",)
PACKAGES = ("numpy", "onnx", "onnxruntime")
_KV = "fp32"
# Every pass reads the whole cache, so a context is not the model's own without being asked for.
_CONTEXT = 4096


def check(options: ExportOptions) -> None:
    """See ``Exporter``."""
    if options.kv != _KV:
        raise InputError(f"--kv {options.kv}: graphs of fixed shape keep it in {_KV}: leave it out")


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    spec, tensors = _cut(job)
    graph, notes = static_options(job, spec), []
    if job.texts:
        form = graph.form
        tensors, moved = balanced(spec, tensors, job.texts, form.bits, form.block_size)
        if moved:
            notes.append(f"outliers balanced at {moved} places")
        graph = dataclasses.replace(graph, head_bits=head_bits(spec, form))
    rounding = of_job(job, spec, tensors, graph.form.bits, progress) if job.texts else None
    total = spec.parameters
    counted = CountedTensors(tensors, lambda done: progress(job.stage, min(done, total), total))
    errors = write_graphs(spec, counted, folder, graph, rounding)
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
    found.check(job.role, job.weights)
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
    )


def _cut(job: ExportJob) -> tuple[DecoderSpec, TensorReader]:
    """Return the decoder with the context that its cache holds."""
    spec, tensors = job.padded()
    return spec.within(job.options.static_context or min(_CONTEXT, spec.max_context)), tensors
