"""Measures what small models' weights of about four bits lose, by how they are chosen.

``auto``, pure int4 and int8 of ours beside llama.cpp's own quantiser, all from the same checkpoint,
on beginnings of chats and of functions; figures are those of ``fidelity``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.bundles import Bundles, Suite
from benchmarks.race import texts
from benchmarks.sections.fidelity import OURS, Sample, _measured, _row, source_logs, with_best
from edgedec.compare.records import Recorder, Row
from edgedec.text.tokenizer import Tokenizer

_PROBLEMS = Path("humaneval", "problems.jsonl")
# Tokens of each kind, and the most of one text.
_TOKENS, _OF_A_TEXT = 640, 128
_GGUF = ("q4_0", "q4_k_m")


def four_bits(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare ``auto`` and other weights of a target, ours and llama.cpp's, with their source."""
    from edgedec.export.checkpoint import Checkpoint

    checkpoint = suite.bundles.checkpoint("target")
    numbers = Checkpoint.open(checkpoint).spec.parameters
    recorder.add(kind="target", name=checkpoint.name, parameters=numbers)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        samples = list(_samples(checkpoint, Path(folder), recorder))
        for name, make in _models(suite.bundles).items():
            rows.append(_row(name, numbers, *_measured(suite, make(), samples), recorder))
    return recorder.table(with_best(rows))


def _models(bundles: Bundles) -> dict[str, Callable[[], Path]]:
    """Return what makes each model, by name."""

    def onnx(weights: str, calibration: str) -> Callable[[], Path]:
        return lambda: bundles.alone("onnx", "target", weights, calibration=calibration)

    def gguf(weights: str, calibration: str) -> Callable[[], Path]:
        return lambda: bundles.gguf("target", weights, calibration=calibration)

    found = {
        "edgedec auto": onnx("auto", "self"),
        "edgedec auto, rounded to nearest": onnx("auto", "none"),
        OURS: onnx("int4", "self"),
        f"{OURS}, rounded to nearest": onnx("int4", "none"),
        "edgedec int8": onnx("int8", "none"),
    }
    for weights in _GGUF:
        found[f"gguf {weights}, importance weights"] = gguf(weights, "self")
        found[f"gguf {weights}"] = gguf(weights, "none")
    return found


def _samples(checkpoint: Path, folder: Path, recorder: Recorder) -> Iterator[Sample]:
    """Yield texts, and what the source makes of them; without any there is nothing to measure."""
    tokenizer = Tokenizer.load(checkpoint)
    kinds: dict[str, Callable[[], Iterator[list[int]]]] = {
        "chat": lambda: (list(one.ids) for one in texts.chat(_TOKENS, tokenizer)),
        "code": lambda: _functions(tokenizer),
    }
    for name, read in kinds.items():
        try:
            ids = [token for text in read() for token in text[:_OF_A_TEXT]][:_TOKENS]
        except texts.NoTexts as error:
            recorder.add(kind="skipped", name=name, reason=str(error))
            continue
        sample = Sample(name, ids, folder / f"{name}.npy")
        np.save(sample.source, source_logs(checkpoint, ids))
        yield sample


def _functions(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the prompts of HumanEval, or raise NoTexts."""
    shared = os.environ.get(texts.SHARED)
    file = Path(shared or "") / _PROBLEMS
    if not shared or not file.is_file():
        raise texts.NoTexts(f"set {texts.SHARED} to a folder with {_PROBLEMS}")
    for line in file.read_text("utf-8").splitlines():
        yield tokenizer.encode(json.loads(line)["prompt"])


SECTIONS = (four_bits,)
