"""CoreML: ``model.mlpackage``, a program of fixed widths over a cache of fixed size."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.coreml.package import package_files
from edgedec.export.calibrated import of_job
from edgedec.export.coreml import FOLDER, ProgramOptions, rounded, write_program
from edgedec.export.coreml.options import check_decoder
from edgedec.export.coreml.parity import compare
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.options import ROWS, ExportOptions, Progress
from edgedec.export.tensors import CountedTensors

WEIGHTS = rounded.WEIGHTS
DEFAULT_WEIGHTS = "int4"
CALIBRATED = ("int4",)
PACKAGES = ("numpy",)
_KV = "fp16"
# The target is meant for the GPU, and the draft for the Neural Engine, which is otherwise idle.
_FORMS = {"target": "slice", "draft": "blend"}
# Share of the model's bytes that an int8 head may add.
_MOST_FOR_HEAD = 0.2


def check(options: ExportOptions) -> None:
    """See ``Exporter``: what there is to refuse depends on the model."""


def check_job(job: ExportJob) -> None:
    """See ``formats.check_job``."""
    job.spec.check_attends("coreml")
    check_decoder(job.spec, program_options(job))


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    spec, tensors = job.padded()
    options, total = program_options(job), spec.parameters
    rounding = of_job(job, spec, tensors, 4, progress)
    counted = CountedTensors(tensors, lambda done: progress(job.stage, min(done, total), total))
    errors = write_program(spec, counted, folder, options, rounding)
    progress(job.stage, total, total)
    files = package_files(Path(FOLDER))
    return Exported(
        tuple(file.as_posix() for file in files),
        _KV,
        spec.vocab_size,
        errors,
        tuple(rounding.notes) if rounding else (),
    )


def parity(job: ExportJob, folder: Path, progress: Progress) -> Figures:
    """See ``Exporter``."""
    spec, tensors = job.padded()
    stage = f"{job.stage} parity"
    found = compare(
        spec, tensors, folder / FOLDER, job.tokens,
        lambda done, total: progress(stage, done, total),
    )  # fmt: skip
    found.check(job.role, job.weights)
    return dataclasses.asdict(found)


def program_options(job: ExportJob) -> ProgramOptions:
    """Return the options of a job's program."""
    spec, options = job.spec, job.options
    more = spec.vocab_size * spec.hidden * 4 / 8
    calibrated = bool(job.texts) and more <= _MOST_FOR_HEAD * spec.parameters * 4 / 8
    rows = options.rows or tuple(width for width in ROWS if width <= spec.max_context)
    return ProgramOptions(
        name=job.checkpoint.name,
        eos_ids=job.checkpoint.eos_ids,
        weights=job.weights,
        form=options.form or _FORMS[job.role],
        rows=rows,
        block_size=job.block_size,
        # Quantisation error of the head affects the logits directly.
        head_bits=8 if calibrated else None,
    )
