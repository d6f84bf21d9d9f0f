"""What the kernels of each processor keep of a model: how near they come to its source, whether a
row can be made independent of its pass.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.aarch64.debian import A76, CPUS
from tools.aarch64.rows import (
    CHECKPOINT,
    RECORDS,
    TARGETS,
    WEIGHTS,
    CountError,
    Weights,
    exported,
)
from tools.aarch64.system import REPOSITORY, System

NAME = "arm_kernels"
# ONNX Runtime's with what ARM contributed to them, without it, and OpenVINO's.
_WITHOUT = "onnx without KleidiAI"
KERNELS = ("onnx", _WITHOUT, "openvino")
_HERE = "x86-64"
# It needs dot products.
_OF_KERNELS = {_WITHOUT: (A76.name,)}
# The demo's target, and the same function in a larger one.
_SHIPPED, _GROWN = "shipped", "target-35m"
_TOKENS, _LIMIT_S = 256, 1800


def record() -> Iterator[dict[str, Any]]:
    """Compare two targets with their sources on every processor; write and yield each figure.

    An interrupted run goes on where it ended.

    Raises:
        MissingError: there is no emulator here.
        CountError: the emulated program failed.

    """
    from benchmarks.records import resuming

    text = json.dumps(_text())
    with resuming(RECORDS, NAME, {"tokens": _TOKENS}) as (recorder, found):
        for name, checkpoint, (weights, block), kernels in _cells():
            target = exported(weights, block, checkpoint)
            words = ["-m", "tools.aarch64.kernels", str(target), kernels, text, str(checkpoint)]
            for cpu in _OF_KERNELS.get(kernels, (_HERE, *CPUS)):
                row = {"target": name, "cpu": cpu, "weights": weights, "block_size": block}
                row["kernels"] = kernels
                if any(row.items() <= earlier.items() for earlier in found):
                    continue
                row |= _last_line(_run(cpu, words))
                recorder.add(kind="kernels", **row)
                yield row


def _cells() -> Iterator[tuple[str, Path, Weights, str]]:
    """Yield each target's name and checkpoint with its weights and the kernels to try."""
    for weights, kernels in itertools.product(WEIGHTS, KERNELS):
        yield _SHIPPED, CHECKPOINT, weights, kernels
    from benchmarks.models.grow import PRESETS, grow

    grown = TARGETS / _GROWN
    if not (grown / "config.json").is_file():
        grow(CHECKPOINT, grown, PRESETS[_GROWN])
    for weights, kernels in itertools.product(WEIGHTS[:3], KERNELS[:2]):
        yield _GROWN, grown, weights, kernels


def _run(cpu: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    if cpu in CPUS:
        try:
            return System(CPUS[cpu]).run(words, _LIMIT_S)
        except subprocess.TimeoutExpired:
            raise CountError(f"{words[3]} on {cpu}: not done within {_LIMIT_S} s") from None
    return subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    if done.returncode:
        raise CountError("".join(done.stderr.strip().splitlines()[-1:]))
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _text() -> list[int]:
    """Return tokens that the demo's target was not trained on."""
    from edgedec.models.demo.heldout import heldout_bodies
    from edgedec.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(CHECKPOINT)
    return tokenizer.encode("\n\n".join(one.text for one in heldout_bodies(20)))[:_TOKENS]


def _without_kleidiai() -> None:
    """Have every session of this process compute without ARM's library of kernels."""
    import onnxruntime

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.add_session_config_entry("mlas.disable_kleidiai", "1")

    onnxruntime.SessionOptions = Options


def _figures(target: Path, kernels: str, tokens: Sequence[int], checkpoint: Path) -> dict[str, Any]:
    """Return divergence from the source, and the padding with which rows are independent."""
    from edgedec.errors import RuntimeUnavailable
    from edgedec.export.checkpoint import Checkpoint
    from edgedec.export.divergence import compare_model
    from edgedec.runtimes.onnx.model import OnnxModel

    if kernels == "openvino":
        from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

        load: Any = OpenVinoModel.compile
    else:
        load = OnnxModel.load
        if kernels == _WITHOUT:
            _without_kleidiai()
    try:
        model = load(target, threads=1, batch_invariant=True)
        padding = model.padding.name
    except RuntimeUnavailable:
        model, padding = load(target, threads=1, batch_invariant=False), None
    source = Checkpoint.open(checkpoint)
    compared = compare_model(model, source.spec, source.tensors, tokens, lambda *_: None)
    return {"padding": padding, **asdict(compared.result(0.0))}


if __name__ == "__main__":
    target, kernels, text, checkpoint = sys.argv[1:]
    print(json.dumps(_figures(Path(target), kernels, json.loads(text), Path(checkpoint))))
