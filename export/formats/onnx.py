"""ONNX for ONNX Runtime: ``model.onnx`` and its weights in a separate file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.errors import InputError
from edgedec.export import weighed
from edgedec.export.calibration import kv_scales
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.onnx import KV_TYPES, GraphOptions, check_decoder, write_model
from edgedec.export.options import ExportOptions, Progress
from edgedec.export.parity import ParityRun
from edgedec.export.quantize import AUTO, FORMATS
from edgedec.export.slices import check_runtime
from edgedec.export.tensors import CountedTensors
from edgedec.models.decoder import DecoderSpec

WEIGHTS = (AUTO, *FORMATS)
DEFAULT_WEIGHTS = AUTO
CALIBRATED = (AUTO, "int4")
# Weights that are chosen by what is measured on texts.
MEASURED = (AUTO,)
PACKAGES = ("numpy", "onnx", "onnxruntime")
_FILES = ("model.onnx", "model.onnx.data")
# Of a number in memory: ONNX Runtime's kernels for the processor compute in fp32.
_BYTES = {"fp16": 4, "fp32": 4}
# First minor version of onnxruntime that passes the golden tests with an int8 cache.
_INT8_CACHE_SINCE = 27
# Numbers of a model whose attention takes rows of its own unasked, and weights that round rows.
_LEAST_PADDED, _MOST_PADDED, _ROUNDED = 64_000_000, 400_000_000, (AUTO, "int4", "int8")


def check(options: ExportOptions) -> None:
    """See ``Exporter``."""
    if options.kv not in KV_TYPES:
        raise InputError(f"--kv {options.kv}: expected one of {', '.join(KV_TYPES)}")
    if options.kv == "int8":
        check_runtime("--kv int8 needs", _INT8_CACHE_SINCE, "--kv fp32")


def check_job(job: ExportJob) -> None:
    """See ``formats.check_job``."""
    check_decoder(job.spec, onnx_options(job))


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    spec, tensors = job.padded()
    stage, total = job.stage, spec.parameters
    graph = onnx_options(job)
    if graph.kv == "int8":
        scales = kv_scales(
            spec,
            tensors,
            job.tokens,
            lambda done, layers: progress(f"{job.stage} cache", done, layers),
        )
        graph = dataclasses.replace(graph, kv_scales=scales)
    if job.heldout:
        written = weighed.write(job, spec, tensors, graph, folder, progress)
    else:
        counted = CountedTensors(tensors, lambda done: progress(stage, min(done, total), total))
        written = weighed.Written(graph, write_model(spec, counted, folder, graph))
    progress(stage, total, total)
    graph, notes = written.options, list(written.notes)
    if job.drafted:
        own, whole = (_head_bytes(spec, graph, n) for n in (len(job.drafted), spec.vocab_size))
        notes.append(f"its head has {own / 1e6:.1f} MB instead of {whole / 1e6:.1f} MB")
    return Exported(
        _FILES, graph.kv, spec.vocab_size, written.errors, tuple(notes), weights=written.weights
    )


def _head_bytes(spec: DecoderSpec, graph: GraphOptions, rows: int) -> int:
    """Return the bytes of a head, with the scales of its blocks, that each pass reads."""
    form, numbers = graph.form, rows * spec.hidden
    if form.name in _BYTES:
        return _BYTES[form.name] * numbers
    bits = form.head_bits or form.bits
    size = form.block_of(bits, spec.hidden)
    return rows * -(-spec.hidden // size) * (size * bits // 8 + 4)


def parity(job: ExportJob, folder: Path, progress: Progress) -> Figures:
    """See ``Exporter``."""
    spec, tensors = job.padded()
    run = ParityRun(spec, tensors, folder, onnx_options(job))
    stage = f"{job.stage} parity"
    found = run.compare(job.tokens, lambda done, total: progress(stage, done, total))
    found.check(job.role, job.weights, job.options.kv, calibrated=bool(job.texts))
    return dataclasses.asdict(found)


def onnx_options(job: ExportJob) -> GraphOptions:
    """Return the options of a job's graph."""
    # The text depends on the target only.
    asked = job.options.batch_invariant and job.role == "target"
    return GraphOptions(
        name=job.checkpoint.name,
        eos_ids=job.checkpoint.eos_ids,
        weights="int4" if job.weights == AUTO else job.weights,
        kv=job.options.kv,
        block_size=job.block_size,
        # A file in int4 whose head has more bits shows that it needs them.
        head_bits=8 if job.held and not job.holds("head", 4) else None,
        max_context=job.options.max_context,
        own_rows=asked or _may_pad(job),
        padding_asked=asked,
        taps=job.taps,
        drafted=job.drafted,
    )


def _may_pad(job: ExportJob) -> bool:
    """Return whether attention takes rows of its own without being asked to.

    Where the rest of a graph needs no padding, that costs a row one to two hundredths of its time.
    Smaller models are done too soon for any padding, and larger ones are padded as a whole.
    """
    middle = _LEAST_PADDED <= job.spec.parameters < _MOST_PADDED
    rounded = job.weights in _ROUNDED and job.options.kv == "fp32"
    return job.role == "target" and rounded and middle
