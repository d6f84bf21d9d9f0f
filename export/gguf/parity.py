"""Compares a GGUF with its source: llama.cpp's logits against the numpy reference."""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from edgedec.errors import ParityError
from edgedec.export import sample
from edgedec.export.divergence import Divergence, ParityFigures
from edgedec.export.gguf import child
from edgedec.export.gguf.pretokenizers import PROBE
from edgedec.export.job import ExportJob, Figures
from edgedec.export.options import Progress
from edgedec.export.reference import Reference
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray
from edgedec.hardware.device import available_cores
from edgedec.text.tokenizer import Tokenizer


def compare(job: ExportJob, file: Path, progress: Progress) -> Figures:
    """Compare a model's logits and its tokenizer with their sources.

    llama.cpp writes its logits to a scratch file next to the model, so that only some columns of
    them are in memory.

    Raises:
        ParityError: it diverges further than its weights allow, or tokenises text differently.

    Returns:
        The figures, and the share of difficult lines that are tokenised identically.

    """
    texts = [sample.TEXT, *PROBE.split("\n"), PROBE]
    columns = job.spec.vocab_used
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        logits = Path(scratch) / "logits"
        request = {
            "task": "evaluator",
            "file": str(file),
            "tokens": list(job.tokens),
            "columns": columns,
            "out": str(logits),
            "texts": texts,
            "threads": available_cores(),
        }

        def read() -> None:
            with suppress(FileNotFoundError):
                done = logits.stat().st_size // (4 * columns)
                progress(f"{job.stage} llama.cpp", done, len(job.tokens))

        answer = child.ask(request, read)
        agreement = _agreement(job, texts, answer["ids"])
        shape = len(job.tokens), columns
        found = _diverge(job, np.memmap(logits, np.float32, "r", shape=shape), progress)
    found.check(job.role, job.weights, calibrated=bool(job.texts))
    figures = dataclasses.asdict(found)
    del figures["fp32_layer_error"]  # layers were not compared one by one
    return {**figures, "same_tokens": agreement}


def _diverge(job: ExportJob, exported: FloatArray, progress: Progress) -> ParityFigures:
    spec, stage = job.spec, f"{job.stage} parity"
    reference = Reference(spec, job.tensors)
    rows = max(CHUNK_NUMBERS // max(spec.hidden, len(job.tokens)), 1)
    parts = range(0, spec.vocab_used, rows)
    steps = spec.layers + len(parts)
    x = reference.embed(job.tokens)
    for layer in range(spec.layers):
        x = reference.layer(layer, x)
        progress(stage, layer + 1, steps)
    x = reference.final_norm(x)
    divergence = Divergence(job.tokens)
    for done, start in enumerate(parts, 1):
        stop = min(start + rows, spec.vocab_used)
        expected = reference.head(x, start, stop)
        divergence.add(expected[:-1], np.array(exported[:-1, start:stop]), start)
        progress(stage, spec.layers + done, steps)
    return divergence.result(0.0)


def _agreement(job: ExportJob, texts: list[str], found: list[list[int]]) -> float:
    """Return the share of lines that the file's tokenizer encodes like the checkpoint's.

    llama.cpp approximates some rules, which matters in rare scripts. Lines of plain ASCII must be
    encoded identically.
    """
    tokenizer = Tokenizer.load(job.checkpoint.texts)
    same = []
    for text, ids in zip(texts, found, strict=True):
        same.append(ids == tokenizer.encode(text, add_special_tokens=False))
        if text.isascii() and not same[-1]:
            raise ParityError(
                f"{job.role}: llama.cpp tokenizes {text[:40]!r} differently from the"
                " checkpoint's tokenizer: please report this model; --no-parity exports it anyway"
            )
    return sum(same) / len(same)
