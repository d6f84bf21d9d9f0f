"""Measures how far int4 weights are from their source, and what peers' four-bit weights are.

KL divergence of the next token's distribution from the fp32 source's, in nats a token, as each
runtime computes it with its own rounding of activations; OpenVINO's also without any, since that is
not its weights'. Texts are read in windows of 512 tokens, each from an empty cache. Bytes are those
of the weights: tables of rotary angles, which our graphs carry and other runtimes compute, are not
counted; they are large where a model of some million parameters reads a long context.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bundles import GROWN, Bundles, Suite
from benchmarks.race import environment, texts
from benchmarks.race._child import WINDOW
from benchmarks.race.children import Failed, ask
from benchmarks.race.protocol import file_of, known
from benchmarks.workloads import divergence, heldout_tokens
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.tree import FloatArray
from edgedec.hardware.device import available_cores
from edgedec.pipeline import Pipeline
from edgedec.text.tokenizer import Tokenizer

OURS = "edgedec int4"
_EDGEDEC = "edgedec "
_TOKENS = 4096
_PROMPTS = 200  # more than enough chats for as many tokens
_GGUF = ("q4_0", "q4_k_m")
_OPENVINO, _OPENVINO_WEIGHTS = "openvino", "int4-128"
_LIMIT_S = 3600.0
# Peers' weights with up to so many times our bytes are those of equals.
_EQUAL = 1.05


@dataclass(frozen=True, slots=True)
class Sample:
    """A text to measure on.

    Attributes:
        name: ``code`` or ``chat``.
        ids: its tokens.
        source: file with what the source predicts, see ``Tools.divergence``.

    """

    name: str
    ids: list[int]
    source: Path


def fidelity(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare four-bit weights of the shipped target, ours and peers', with their source."""
    return _compared(suite, recorder, None)


def fidelity_grown(suite: Suite, recorder: Recorder) -> list[Row]:
    """Repeat ``fidelity`` with the target grown to half a billion parameters."""
    return _compared(suite, recorder, GROWN)


def _compared(suite: Suite, recorder: Recorder, preset: str | None) -> list[Row]:
    from edgedec.export.checkpoint import Checkpoint

    rows = []
    numbers = Checkpoint.open(suite.bundles.checkpoint("target", preset)).spec.parameters
    with tempfile.TemporaryDirectory() as folder:
        samples = _samples(suite.bundles, Path(folder), recorder)
        for name, make in _models(suite.bundles, preset).items():
            rows.append(_row(name, numbers, *_measured(suite, make(), samples), recorder))
        try:
            rows += _openvino(suite, preset, samples, numbers, recorder)
        except Failed as error:
            recorder.add(kind="skipped", name=_OPENVINO, reason=str(error))
            rows.append({"model": _OPENVINO, "skipped": str(error)})
    return recorder.table(with_best(rows))


def with_best(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with our KL over that of the best peer whose weights are not larger.

    Peers count where they take up to 5% more bytes; there is None where none is that small.
    """
    found = list(rows)
    peers = [row for row in found if "skipped" not in row and not row["model"].startswith(_EDGEDEC)]
    for row in found:
        if not row["model"].startswith(_EDGEDEC):
            continue
        equal = [one for one in peers if one["weight_bytes"] <= _EQUAL * row["weight_bytes"]]
        for name in [name for name in row if name.endswith("_kl_nats")]:
            best = min((one[name] for one in equal), default=None)
            of_best = name.replace("_kl_nats", "_kl_of_best")
            row[of_best] = None if best is None else row[name] / best
    return found


def _models(bundles: Bundles, preset: str | None) -> dict[str, Callable[[], Path]]:
    """Return what makes each model that runs in this process, by name."""

    def onnx(block_size: int, calibration: str) -> Callable[[], Path]:
        return lambda: bundles.alone(
            "onnx", "target", "int4", preset, block_size=block_size, calibration=calibration
        )

    def gguf(weights: str, calibration: str | None) -> Callable[[], Path]:
        return lambda: bundles.gguf("target", weights, preset, calibration)

    found = {
        OURS: lambda: bundles.bundle("int4", target=preset),
        f"{OURS}, blocks of 32": onnx(32, "self"),
        f"{OURS}, rounded plainly, blocks of 128": onnx(128, "none"),
        f"{OURS}, rounded plainly, blocks of 32": onnx(32, "none"),
    }
    for weights in _GGUF:
        found[f"gguf {weights}, importance weights"] = gguf(weights, None)
        found[f"gguf {weights}"] = gguf(weights, "none")
    return found


# -- texts and what the source makes of them ----------------------------------------------------


def _samples(bundles: Bundles, folder: Path, recorder: Recorder) -> list[Sample]:
    """Return the texts; a grown target's source is the small one, whose function it computes."""
    checkpoint = bundles.checkpoint("target")
    tokenizer = Tokenizer.load(checkpoint)
    found = {"code": heldout_tokens(tokenizer, _TOKENS)}
    try:
        chats = texts.chat(_PROMPTS, tokenizer)
    except texts.NoTexts as error:
        recorder.add(kind="skipped", name="chat", reason=str(error))
    else:
        found["chat"] = [token for chat in chats for token in chat.ids][:_TOKENS]
    samples = [Sample(name, ids, folder / f"{name}.npy") for name, ids in found.items()]
    for sample in samples:
        np.save(sample.source, source_logs(checkpoint, sample.ids))
    return samples


def source_logs(checkpoint: Path, ids: list[int]) -> FloatArray:
    """Return a checkpoint's log-probabilities as ``Tools.divergence`` reads them, in fp32.

    Only of tokens that the tokenizer has; exports rule out the others.
    """
    from edgedec.export.checkpoint import Checkpoint
    from edgedec.export.reference import Reference

    opened = Checkpoint.open(checkpoint)
    used = min(opened.spec.vocab_used, Tokenizer.load(checkpoint).vocab_size)
    reference, parts = Reference(opened.spec, opened.tensors), []
    for start in range(0, len(ids) - 1, WINDOW):
        wide = reference.logits(ids[start : start + WINDOW])[:-1, :used]
        wide = wide - wide.max(axis=1, keepdims=True)
        parts.append(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))
    logs: FloatArray = np.concatenate(parts)
    return logs


# -- models -------------------------------------------------------------------------------------


def _measured(
    suite: Suite, path: Path, samples: Iterable[Sample]
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the bytes of a model's weights, and its divergence on each text."""
    with Pipeline.open(path, suite.options(drafter="none", max_context=WINDOW)) as pipeline:
        model = pipeline.target
        found = {one.name: divergence(model, one.ids, one.source) for one in samples}
        return model.info.weight_bytes - angle_bytes(pipeline.pair.target.path), found


def angle_bytes(file: Path) -> int:
    """Return the bytes of the tables of rotary angles in a model's file; only ours have them."""
    if file.suffix != ".onnx":
        return 0
    import onnx

    weights = onnx.load(file, load_external_data=False).graph.initializer
    tables = [one for one in weights if one.name.startswith(("cos.", "sin."))]
    return sum(4 * math.prod(one.dims) for one in tables)  # float32


def _openvino(
    suite: Suite,
    preset: str | None,
    samples: Iterable[Sample],
    numbers: int,
    recorder: Recorder,
) -> list[Row]:
    """Measure OpenVINO's weights in its own environment; Failed where that cannot be made."""
    peers, work = known(), suite.bundles.work
    peer = peers[_OPENVINO]
    home = environment.make(peer, work)
    maker = environment.ModelMaker(suite.bundles, preset, work, peers, {peer.NAME: home})
    folder = maker.converted(peer.NAME, "target", _OPENVINO_WEIGHTS)
    weight_bytes = (folder / "openvino_model.bin").stat().st_size
    rows = []
    for accurate in (False, True):
        request = {
            **home.common,
            "task": "divergence", "models": {"target": str(folder)},
            "threads": suite.threads or available_cores(), "settings": {"accurate": accurate},
        }  # fmt: skip
        found = {}
        for one in samples:
            asked = {**request, "ids": one.ids, "source": str(one.source)}
            log = work / "logs" / "openvino-divergence.log"
            found[one.name] = ask(home.python, file_of(peer), asked, log, _LIMIT_S)
        name = f"{peer.TITLE} {_OPENVINO_WEIGHTS}{', only weights rounded' if accurate else ''}"
        rows.append(_row(name, numbers, weight_bytes, found, recorder))
    return rows


def _row(
    name: str,
    numbers: int,
    weight_bytes: int,
    found: Mapping[str, Mapping[str, Any]],
    recorder: Recorder,
) -> Row:
    row: Row = {
        "model": name,
        "weight_bytes": weight_bytes,
        "bits_per_weight": 8 * weight_bytes / numbers,
    }
    for text, figures in found.items():
        recorder.add(kind="text", model=name, text=text, **figures)
        row |= {f"{text}_{key}": figures[key] for key in ("kl_nats", "top1", "perplexity")}
    return row


SECTIONS = (fidelity, fidelity_grown)
