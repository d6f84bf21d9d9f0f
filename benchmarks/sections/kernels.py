"""Compares ONNX Runtime's kernels with OpenVINO's on the same bundle and the same processor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack, closing
from statistics import median

from benchmarks.bundles import GROWN, Suite
from benchmarks.pass_times import pass_times
from benchmarks.workloads import heldout_tokens
from edgedec.compare.drafters import compared
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.params import SamplingParams
from edgedec.decoding.session import Model
from edgedec.hardware.resident import release_free, resident_bytes
from edgedec.pipeline import GenerateOptions, Pipeline

_ROWS = (1, 2, 4, 6, 8, 12, 17)
_CONTEXTS = (128, 1000)
# Kernels may be slower if a pass has another number of rows than the previous one.
_ORDERS: dict[str, Sequence[Sequence[int]]] = {
    "in turn": [_ROWS],
    "as many again": [(rows,) for rows in _ROWS],
}
_TURNS, _TOKENS = 15, 128


def kernels(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare the costs of passes, and the speed of texts, plain and drafted."""
    rows: list[Row] = []
    for weights, preset in (("int4", GROWN), ("int4", None)):
        rows += _costs(suite, recorder, weights, preset)
    for sampling in (SamplingParams(), SamplingParams(temperature=0.8, seed=0)):
        rows += _speeds(suite, recorder, sampling)
    return rows


def _costs(suite: Suite, recorder: Recorder, weights: str, preset: str | None) -> list[Row]:
    """Measure passes by rows after short and long contexts, with both kernels in turn."""
    bundle = suite.bundles.bundle(weights, target=preset)
    about: Row = {"weights": weights, "model": preset or "as it ships"}
    with ExitStack() as stack:
        models: dict[str, Model] = {}
        held: dict[str, int] = {}
        ways = {"onnxruntime": suite.plain(), "openvino": suite.on_openvino("none")}
        for name, options in ways.items():
            release_free()
            before = resident_bytes()
            pipeline = stack.enter_context(Pipeline.open(bundle, options))
            models[name] = pipeline.target
            tokens = heldout_tokens(pipeline.tokenizer, _CONTEXTS[-1] + _ROWS[-1])
            _passes(stack, {name: models[name]}, tokens, _CONTEXTS[0], 1)  # allocates what it needs
            held[name] = resident_bytes() - before
        rows = []
        for context, order in itertools.product(_CONTEXTS, _ORDERS):
            found = _passes(stack, models, tokens, context, _TURNS, _ORDERS[order])
            for name, seconds in found.items():
                passes = {**about, "context": context, "order": order, "way": name}
                recorder.add(kind="passes", **passes, seconds=seconds)
                costs = {f"T({width})_s": median(seconds[width]) for width in _ROWS}
                rows.append({**passes, "held_bytes": held[name], **costs})
    return recorder.table(rows, "costs")


def _passes(
    stack: ExitStack,
    models: dict[str, Model],
    tokens: list[int],
    context: int,
    turns: int,
    groups: Sequence[Sequence[int]] = (_ROWS,),
) -> dict[str, dict[int, list[float]]]:
    """Return seconds by kernels and rows; numbers of rows of one group take turns."""
    found: dict[str, dict[int, list[float]]] = {name: {} for name in models}
    room = context + _ROWS[-1]
    for group in groups:
        sessions = {name: stack.enter_context(closing(m.open(room))) for name, m in models.items()}
        for name, seconds in pass_times(sessions, tokens, context, group, turns).items():
            found[name] |= seconds
    return found


def _speeds(suite: Suite, recorder: Recorder, sampling: SamplingParams) -> list[Row]:
    """Compare plain and drafted decoding with both kernels, interleaved."""
    entrants = {
        "openvino plain": suite.on_openvino("none"),
        "openvino auto": suite.on_openvino("auto"),
        "onnxruntime plain": suite.plain(),
        "onnxruntime auto": suite.options(drafter="auto"),
    }
    asked = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
    bundle = suite.bundles.bundle("int4", target=GROWN)
    found = compared(bundle, entrants, suite.code(), asked, recorder)
    rows: list[Row] = [{"temperature": sampling.temperature, **row} for row in found.rows()]
    return recorder.table(rows, "speeds")
