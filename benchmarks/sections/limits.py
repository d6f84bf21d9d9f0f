"""Compares decoding with the machine's limit (the roofline), and breaks down the rest of the time.

A target's pass over n rows takes at least ``max(weight bytes / bandwidth, n * operations / peak)``
(the roofline: Williams, Waterman and Patterson, 2009). Both rates are measured here, in turn with
the decoding: bandwidth by scalar products of vectors as long as the weights, which write nothing;
the peak by the fastest products found, including OpenVINO's if it is installed. The share of the
limit is the sum of these least times over the time of the rounds.
"""

from __future__ import annotations

import json
import tempfile
import timeit
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.bundles import GROWN, Suite
from benchmarks.pass_times import pass_times
from benchmarks.workloads import heldout_tokens
from edgedec.compare.drafters import opened
from edgedec.compare.records import Recorder, Row
from edgedec.hardware.device import available_cores
from edgedec.pipeline import GenerateOptions, Generation, Pipeline

_TOKENS = 128
_TURNS = 7
# Widths of the passes that are broken down, at the context of a text's middle.
_WIDTHS, _CONTEXT, PASSES = (1, 4, 8), 100, 20
# Rows and columns of a compute-bound product.
_SIDE, _CHUNK = 2048, 256
_ATTENTION, _PRODUCT = "GroupQueryAttention", "MatMulNBits"
# Rows of OpenVINO's prefill passes.
_WIDEST = 64
_ON_OPENVINO = {"none": "plain on OpenVINO", "auto": "auto on OpenVINO"}
_KINDS = ("layers", "head", "attention", "other")


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits of the machine.

    Attributes:
        bandwidth: bytes per second that all threads read together.
        peak: operations per second of matrix products.

    """

    bandwidth: float
    peak: float


@dataclass(frozen=True, slots=True)
class Work:
    """Minimal work of a target's pass: bytes to read, and operations per row."""

    weight_bytes: int
    operations: float

    def least_s(self, rows: int, machine: Machine) -> float:
        """Return the least seconds of a pass."""
        return max(self.weight_bytes / machine.bandwidth, rows * self.operations / machine.peak)


def limits(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the share of the machine's limit that the grown target reaches, and the rest."""
    bundle = suite.bundles.bundle("int4", target=GROWN)
    threads = suite.threads or available_cores()
    options = GenerateOptions(_TOKENS, ignore_eos=True)
    ways = {"plain": suite.plain(), "auto": suite.options()}
    if find_spec("openvino"):
        ways |= {_ON_OPENVINO[draft]: suite.on_openvino(draft) for draft in _ON_OPENVINO}
    with opened(bundle, ways) as pipelines:
        target = pipelines["plain"].pair.target.path
        checkpoint = suite.bundles.checkpoint("target", GROWN)
        work = _work(checkpoint, pipelines["plain"].target.info.weight_bytes)
        rates, texts = [], []
        for name, prompt in suite.code():
            # Measured with each prompt, since the machine's speed drifts.
            rates.append(bandwidth(work.weight_bytes, threads))
            for way, pipeline in pipelines.items():
                found = pipeline.generate(prompt, options)
                texts.append({"way": way, "prompt": name, **_times(found)})
                recorder.add(kind="run", bandwidth=rates[-1], **texts[-1])
        most = peak(target, threads, work.operations)
        if _ON_OPENVINO["none"] in pipelines:
            most = max(most, _reached(pipelines[_ON_OPENVINO["none"]], work.operations))
    machine = Machine(median(rates), most)
    recorder.add(kind="limits", threads=threads, bandwidth=machine.bandwidth, peak=machine.peak,
                 weight_bytes=work.weight_bytes, operations=work.operations)  # fmt: skip
    rows = [_share(way, texts, work, machine) for way in pipelines]
    rows += [_pass(target, width, threads, work, machine) for width in _WIDTHS]
    return recorder.table(rows)


def bandwidth(size: int, threads: int) -> float:
    """Return bytes per second that threads read from ``size`` bytes together."""
    parts = [np.ones(size // 4 // threads, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = []
        for _ in range(_TURNS):
            begin = perf_counter()
            list(pool.map(lambda part: np.dot(part, part), parts))
            seconds.append(perf_counter() - begin)
    return sum(part.nbytes for part in parts) / min(seconds)


def peak(target: Path, threads: int, operations: float) -> float:
    """Return the operations per second of the fastest products: BLAS's, or the target's own.

    The target's are in int8, over a whole prefill chunk; BLAS's are in float32.
    """
    square = np.ones((_SIDE, _SIDE), np.float32)
    with threadpool_limits(threads):
        blas_s = min(timeit.repeat(lambda: square @ square, number=1, repeat=_TURNS))
    _, spent = _profiled(target, _CHUNK, threads)
    own_s = spent["layers"] + spent["head"]
    return max(2.0 * _SIDE**3 / blas_s, _CHUNK * operations / own_s)


def _reached(pipeline: Pipeline, operations: float) -> float:
    """Return the largest operations per second of a target's prefill passes."""
    tokens = heldout_tokens(pipeline.tokenizer, _CONTEXT + _WIDEST)
    with closing(pipeline.target.open(len(tokens))) as session:
        seconds = pass_times({"target": session}, tokens, _CONTEXT, (_WIDEST,), _TURNS)
    return _WIDEST * operations / min(seconds["target"][_WIDEST])


def _work(checkpoint: Path, weight_bytes: int) -> Work:
    """Count a row's operations: one multiplication and one addition for each matrix element."""
    from edgedec.export.safetensors import SafetensorsFile

    file = SafetensorsFile(checkpoint / "model.safetensors")
    shapes = [file.shape(name) for name in file.names]
    # The embedding is also the head's matrix.
    return Work(weight_bytes, 2.0 * sum(prod(shape) for shape in shapes if len(shape) == 2))


def _times(found: Generation) -> Row:
    metrics = found.metrics
    return {
        "tokens": metrics.emitted - metrics.first_round,
        "decode_s": metrics.decode_s,
        "rounds": {rows: len(some) for rows, some in metrics.round_times.by_rows.items()},
        "draft": metrics.draft_s / metrics.rounds_s,
        "target": metrics.target_s / metrics.rounds_s,
    }


def _share(way: str, texts: list[Row], work: Work, machine: Machine) -> Row:
    """Return one configuration's share of the limit, and the shares of time outside the target."""
    chosen = [text for text in texts if text["way"] == way]

    def least_s(text: Row) -> float:
        rounds: dict[int, int] = text["rounds"]
        return sum(count * work.least_s(rows, machine) for rows, count in rounds.items())

    return {
        "of": way,
        "share_of_limit": median(least_s(text) / text["decode_s"] for text in chosen),
        "draft": median(text["draft"] for text in chosen),
        "engine": median(1 - text["draft"] - text["target"] for text in chosen),
        "tokens_per_second": median(text["tokens"] / text["decode_s"] for text in chosen),
    }


def _pass(target: Path, width: int, threads: int, work: Work, machine: Machine) -> Row:
    """Return a breakdown of a pass's time, from the runtime's own profile of each operator."""
    seconds, spent = _profiled(target, width, threads)
    layers = spent["layers"]
    return {
        "of": f"pass over {width} rows",
        "share_of_limit": work.least_s(width, machine) / seconds,
        "pass_s": seconds,
        # Products read the weights, so the limit applies to their time only.
        "products_of_layers": layers / seconds,
        "product_of_head": spent["head"] / seconds,
        "attention": spent["attention"] / seconds,
        "other_operators": spent["other"] / seconds,
        "between_operators": 1 - sum(spent.values()) / seconds,
    }


def profiled(file: Path, width: int, threads: int) -> list[Row]:
    """Return the events of passes over so many rows, by their ends: operators before their pass."""
    from edgedec.runtimes._ort.devices import choose
    from edgedec.runtimes._ort.opening import open_session, session_options
    from edgedec.runtimes.onnx.graph import Graph, GraphFacts
    from edgedec.runtimes.onnx.passes import Passes

    options = session_options(threads)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder, "profile"))
        inference = open_session(str(file), options, choose(None, ()), threads)
        facts = GraphFacts.parse(inference.get_modelmeta().custom_metadata_map, str(file))
        graph = Graph.of(inference, facts, str(file))
        cache = graph.new_cache(_CONTEXT + width)
        passes = Passes(graph, cache)
        passes.run([0] * _CONTEXT, 0, head=False)
        if cache.recent is not None:
            cache.recent.held_from = _CONTEXT  # each pass begins there
        for _ in range(PASSES):
            passes.run([0] * width, _CONTEXT, head=True)
        passes.close()
        cache.close()
        events = json.loads(Path(inference.end_profiling()).read_text("utf-8"))
    return sorted(events, key=lambda one: float(one["ts"] + one["dur"]))


def _profiled(target: Path, width: int, threads: int) -> tuple[float, Mapping[str, float]]:
    """Return the seconds of a pass, and those inside operators of each kind."""
    return _by_kind(profiled(target / "model.onnx" if target.is_dir() else target, width, threads))


def _by_kind(events: list[Row]) -> tuple[float, Mapping[str, float]]:
    """Sum operators of the last half of the passes, by kind; microseconds become seconds."""
    # The last product of a pass is the head's.
    totals: list[float] = []
    kinds: list[dict[str, float]] = []
    spent, head = dict.fromkeys(_KINDS, 0.0), 0.0
    for event in events:
        if event["name"] == "model_run":
            totals.append(event["dur"])
            kinds.append({**spent, "head": head})
            spent, head = dict.fromkeys(_KINDS, 0.0), 0.0
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            op = event["args"]["op_name"]
            if op == _PRODUCT:
                spent["layers"] += head
                head = event["dur"]
            else:
                spent["attention" if op == _ATTENTION else "other"] += event["dur"]
    totals, kinds = totals[-PASSES // 2 :], kinds[-PASSES // 2 :]
    typical = {kind: median(one[kind] for one in kinds) / 1e6 for kind in _KINDS}
    return median(totals) / 1e6, typical
