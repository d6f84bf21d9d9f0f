"""GGUF for llama.cpp: one file, ``model.gguf``, with the tokenizer in it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import installation
from edgedec.decoding.session import Model
from edgedec.errors import ExtraMissing, InputError, ParityError
from edgedec.export.gguf.architectures import Architecture
from edgedec.export.gguf.importance import importance
from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import general_keys, model_keys, sampling_keys
from edgedec.export.gguf.naming import Layout
from edgedec.export.gguf.parity import compare
from edgedec.export.gguf.quantize import FTYPES, fallbacks, quantise, tensor_errors
from edgedec.export.gguf.tokenizer import left_out, tokenizer_keys
from edgedec.export.gguf.writing import PLAIN
from edgedec.export.gguf.writing import write as write_plain
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.options import DRAFTS, ExportOptions, Progress
from edgedec.export.quantize import AUTO
from edgedec.export.sample import read_text
from edgedec.export.tensors import CountedTensors
from edgedec.text.tokenizer import Tokenizer

WEIGHTS = (AUTO, *FTYPES, *reversed(tuple(PLAIN)))
# What ``auto`` tries, in this order, until one is close enough.
_LADDER = ("q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0")
# q4_k_m is closer to its source and faster in single-row passes (0.5 B model: 50 ms against 70),
# but over 4 and 8 rows, as in verification, q4_0 takes 0.7 of its time; and q4_0's blocks always
# fit.
DEFAULT_WEIGHTS = "q4_0"
# llama.cpp's blocks of q8_0 are the same with an importance matrix as without.
_WEIGHED = tuple(name for name in FTYPES if name != "q8_0")
CALIBRATED = (AUTO, *_WEIGHED)
MEASURED = (AUTO,)
PACKAGES = ("numpy", "gguf", "llama-cpp-python")
_FILE = "model.gguf"
# More tokens would change the importance little, and the numpy reference is slow.
_WEIGHING_TOKENS = 2048
_WEIGHING_LEAST = 128
# llama.cpp's default type of keys and values.
_KV = "f16"


def check(options: ExportOptions) -> None:
    """See ``Exporter``."""
    if options.imatrix_text is not None:
        read_text(options.imatrix_text)
    if importlib.util.find_spec("llama_cpp") is None:
        raise ExtraMissing(installation.needs("exporting to gguf", "gguf", "llama-cpp-python"))


def check_job(job: ExportJob) -> None:
    """See ``formats.check_job``."""
    _metadata(job, architecture_for(job.spec))
    _weighing_tokens(job)


def weighs(job: ExportJob) -> bool:
    """Return whether an importance matrix changes a job's weights."""
    return job.weights in CALIBRATED


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    if job.weights != AUTO:
        return _written(job, folder, progress)
    most = job.options.max_kl * (DRAFTS if job.role == "draft" else 1)
    # K-quants have blocks of 256 columns; llama.cpp's quantiser refuses a model without any.
    rows = (job.spec.hidden, job.spec.ffn, job.spec.q_size)
    ladder = [one for one in _LADDER if "_k" not in one or any(row % 256 == 0 for row in rows)]
    said = f"none of {', '.join(ladder)} loses as little as {most:g} nats per token"
    for weights in ladder:
        one = dataclasses.replace(job, weights=weights, tokens=job.heldout[0])
        found = _written(one, folder, progress)
        if _lost(one, folder) <= most:
            said = f"the first of {', '.join(ladder)} that loses at most {most:g} nats per token"
            break
    return dataclasses.replace(found, weights=weights, notes=(f"{weights}: {said}", *found.notes))


def _lost(job: ExportJob, folder: Path) -> float:
    """Return the divergence of what was written; infinity where parity refuses it."""
    try:
        found = compare(job, folder / _FILE, lambda stage, done, total: None)
    except ParityError:
        return math.inf
    return float(found["kl_nats"])


def _written(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    spec, file = job.spec, folder / _FILE
    architecture = architecture_for(spec)
    metadata = _metadata(job, architecture)
    direct = job.weights in PLAIN
    plain = job.weights if direct else _lossless(job)
    first = file if direct else folder / "model.plain"
    total = spec.parameters
    counted = CountedTensors(job.tensors, lambda done: progress(job.stage, min(done, total), total))
    write_plain(first, spec, counted, architecture, metadata, plain)
    notes = tuple(filter(None, [architecture.note(spec), left_out(job.content)]))
    errors = {}
    if not direct:
        weighing = _weighing(job, folder, architecture.layout, progress)
        quantise(first, file, job, weighing, progress)
        notes += fallbacks(file, job.weights)
        errors = tensor_errors(first, file)
        for scratch in filter(None, (first, weighing)):
            scratch.unlink()
    progress(job.stage, total, total)
    return Exported((_FILE,), _KV, spec.vocab_size, errors, notes)


def _metadata(job: ExportJob, architecture: Architecture) -> dict[str, Any]:
    return {
        **general_keys(job.checkpoint.name, job.options.licence or job.checkpoint.licence),
        **sampling_keys(job.checkpoint.generation),
        **model_keys(job.spec, architecture),
        **tokenizer_keys(job.checkpoint, job.content, job.spec.vocab_size),
    }


def parity(job: ExportJob, folder: Path, progress: Progress) -> Figures:
    """See ``Exporter``."""
    return compare(job, folder / _FILE, progress)


def opened(folder: Path) -> Model:
    """Return the exported model in llama.cpp, which may show its states to a head."""
    from edgedec.runtimes.llamacpp.model import LlamaModel

    return LlamaModel.load(folder / _FILE)


def _weighing_tokens(job: ExportJob) -> list[int]:
    """Return the tokens of the given text, or else of the target's own texts, if there are any."""
    text = job.options.imatrix_text
    if text is None:
        return [token for written in job.texts for token in written][:_WEIGHING_TOKENS]
    tokens = Tokenizer.load(job.checkpoint.texts).encode(read_text(text))[:_WEIGHING_TOKENS]
    if len(tokens) < _WEIGHING_LEAST:
        raise InputError(
            f"{text} has {len(tokens)} tokens for the importance matrix, expected"
            f" {_WEIGHING_LEAST} or more"
        )
    return tokens


def _weighing(job: ExportJob, folder: Path, layout: Layout, progress: Progress) -> Path | None:
    """Return a scratch file with the importance of each matrix's columns, if there is a text."""
    tokens = _weighing_tokens(job) if job.weights in _WEIGHED else []
    if not tokens:
        return None
    stage = f"{job.stage} importance"
    found = importance(
        job.spec, job.tensors, tokens, layout, lambda done, total: progress(stage, done, total)
    )
    file = folder / "importance.npz"
    np.savez(file, allow_pickle=False, **found)
    return file


def _lossless(job: ExportJob) -> str:
    """Return the smallest type that holds the checkpoint's values exactly."""
    dtypes = job.checkpoint.tensors.dtypes
    return {frozenset({"F16"}): "f16", frozenset({"BF16"}): "bf16"}.get(dtypes, "f32")
