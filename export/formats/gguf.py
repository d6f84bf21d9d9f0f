"""GGUF for llama.cpp: one file, ``model.gguf``, with the tokenizer in it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import general_keys, model_keys
from edgedec.export.gguf.parity import compare
from edgedec.export.gguf.quantize import FTYPES, quantise
from edgedec.export.gguf.tokenizer import tokenizer_keys
from edgedec.export.gguf.writing import PLAIN
from edgedec.export.gguf.writing import write as write_plain
from edgedec.export.job import Exported, Figures, Job
from edgedec.export.options import ExportOptions, Progress
from edgedec.export.tensors import CountedTensors

WEIGHTS = (*FTYPES, *reversed(tuple(PLAIN)))
DEFAULT_WEIGHTS = "q4_0"
EXTRA = "gguf"
PACKAGES = ("numpy", "gguf", "llama-cpp-python")
_FILE = "model.gguf"
# What llama.cpp keeps keys and values in unless told otherwise.
_KV = "f16"


def check(options: ExportOptions) -> None:
    """See Exporter."""
    if options.kv != "fp32" and options.formats == ("gguf",):
        raise InputError(
            f"--kv {options.kv}: a GGUF does not say how keys and values are kept;"
            " choose it when the bundle is run"
        )
    if importlib.util.find_spec("llama_cpp") is None:
        raise RuntimeUnavailable(
            "exporting to gguf needs llama.cpp to quantise and to compare: install it with"
            " `pip install 'edgedec[gguf]'`"
        )


def write(job: Job, folder: Path, progress: Progress) -> Exported:
    """See Exporter."""
    spec, file = job.spec, folder / _FILE
    architecture = architecture_for(spec)
    metadata: dict[str, Any] = {
        **general_keys(job.checkpoint.name, job.options.licence or job.checkpoint.licence),
        **model_keys(spec, architecture),
        **tokenizer_keys(job.checkpoint, job.content, spec.vocab_size),
    }
    direct = job.weights in PLAIN
    plain = job.weights if direct else _lossless(job)
    first = file if direct else folder / "model.plain"
    total = spec.parameters
    counted = CountedTensors(job.tensors, lambda done: progress(job.stage, min(done, total), total))
    write_plain(first, spec, counted, architecture, metadata, plain)
    notes = tuple(filter(None, [architecture.note(spec)]))
    if not direct:
        notes += quantise(first, file, job, progress)
        first.unlink()
    progress(job.stage, total, total)
    return Exported((_FILE,), _KV, spec.vocab_size, notes=notes)


def parity(job: Job, folder: Path, progress: Progress) -> Figures:
    """See Exporter."""
    return compare(job, folder / _FILE, progress)


def _lossless(job: Job) -> str:
    """The smallest type that holds what the checkpoint holds."""
    dtypes = job.checkpoint.tensors.dtypes
    return {frozenset({"F16"}): "f16", frozenset({"BF16"}): "bf16"}.get(dtypes, "f32")
