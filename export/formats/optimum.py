"""Any decoder that optimum-onnx can trace: ``optimum.onnx`` and its weights in a separate file."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from edgedec._support.model_path import gguf_of
from edgedec.decoding.session import Session
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError
from edgedec.export import optimum, traced
from edgedec.export.describing import Outline
from edgedec.export.divergence import Divergence
from edgedec.export.job import Exported, ExportJob, Figures
from edgedec.export.options import ExportOptions, Progress
from edgedec.export.tensors import FloatArray
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

WEIGHTS = traced.WEIGHTS
DEFAULT_WEIGHTS = "fp32"
PACKAGES = ("onnx", "onnxruntime", "optimum", "optimum-onnx", "torch", "transformers")
_FILES = ("optimum.onnx", "optimum.onnx.data")
# Rows of a parity pass, whose logits are in memory together.
_ROWS = 64


def check(options: ExportOptions) -> None:
    """See ``Exporter``."""
    for source in filter(None, (options.target, options.draft)):
        if gguf_of(source):
            raise InputError(
                f"{source} is a GGUF file, and the format optimum is made of Hugging Face folders"
                " only: leave --exporter optimum out"
            )
    optimum.check_installed()


def outline(folder: Path) -> Outline:
    """Return the sizes of a checkpoint whose architecture has no spec."""
    return optimum.outline(folder)


def write(job: ExportJob, folder: Path, progress: Progress) -> Exported:
    """See ``Exporter``."""
    steps = 4 if job.weights == "int8" else 3
    progress(job.stage, 0, steps)
    decoder = optimum.TorchDecoder(job.checkpoint.path)
    progress(job.stage, 1, steps)
    with tempfile.TemporaryDirectory(prefix="traced-", dir=folder) as name:
        graph = Path(name) / "traced.onnx"
        decoder.trace(graph)
        del decoder  # its weights are in the graph now
        progress(job.stage, 2, steps)
        if job.weights == "int8":
            graph = traced.quantize(graph)
            progress(job.stage, 3, steps)
        cache = traced.finish(graph, folder / _FILES[0], _facts(job))
    progress(job.stage, steps, steps)
    notes = (_cost(cache, job.spec.max_context),)
    return Exported(_FILES, "fp32", job.columns, notes=notes)


def parity(job: ExportJob, folder: Path, progress: Progress) -> Figures:
    """Compare with torch itself, since the architecture may have no spec."""
    stage, tokens = f"{job.stage} parity", list(job.tokens)
    progress(stage, 0, 3)
    expected = optimum.TorchDecoder(job.checkpoint.path).logits(tokens)
    progress(stage, 1, 3)
    model = registry.load("optimum", folder / _FILES[0], LoadOptions())
    try:
        got = _logits(model.open(len(tokens)), tokens)
    finally:
        model.close()
    progress(stage, 2, 3)
    used = job.spec.vocab_used
    divergence = Divergence(tokens)
    divergence.add(expected[:-1, :used], got[:-1, :used], 0)
    found = divergence.result(0.0)
    found.check(job.role, job.weights)
    progress(stage, 3, 3)
    figures = dataclasses.asdict(found)
    del figures["fp32_layer_error"]  # layers were not compared one by one
    return figures


def _facts(job: ExportJob) -> traced.TracedFacts:
    return traced.TracedFacts(
        name=job.checkpoint.name,
        eos_ids=job.checkpoint.eos_ids,
        max_context=job.spec.max_context,
        vocab_used=job.spec.vocab_used,
        vocab_size=job.columns,
        weights=job.weights,
    )


def _cost(cache: traced.Cache, max_context: int) -> str:
    full = cache.token_bytes * max_context
    return (
        f"every pass copies its keys and values: {cache.token_bytes} bytes per token,"
        f" {full / 1e6:.1f} MB at {max_context} tokens, in memory twice; drafts are chains"
    )


def _logits(session: Session, tokens: list[int]) -> FloatArray:
    """Return the logits of each token's successor, by passes over the exported graph."""
    found = []
    for start in range(0, len(tokens), _ROWS):
        chain = TokenTree.chain(tokens[start : start + _ROWS])
        logits = session.forward(chain).logits
        assert logits is not None
        found.append(logits.copy())
        session.commit(range(len(chain)))
    session.close()
    return np.concatenate(found)
