"""Measures the cost of a conversation's next turn, in the same process and after a restart.

The goals after a context of about 2,000 tokens: the next turn's first token takes a tenth of the
time of prefilling everything again, and saving and restoring take at most half a second longer than
writing and reading the bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bundles import GROWN, Suite
from benchmarks.workloads import long_text
from edgedec.compare.records import Recorder
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import GenerateOptions, Pipeline

_LONG, _NEW, _REPEATS = 2000, 16, 3
# Plain decoding, so that no draft length, which follows measured time, decides a near-tie.
_OPTIONS = GenerateOptions(
    32, SamplingParams(temperature=0.8, seed=1), ignore_eos=True, drafter="none"
)


def conversations(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Compare a next turn with prefilling its whole context again; save and restore it."""
    paths = {
        "onnx": suite.bundles.bundle("int4", target=GROWN),
        "llamacpp": suite.bundles.gguf("target", "q4_0", GROWN),
    }
    return [_row(suite, name, path, recorder) for name, path in paths.items()]


def _row(suite: Suite, runtime: str, path: Path, recorder: Recorder) -> dict[str, Any]:
    options = suite.options(max_context=_LONG + 512)
    with tempfile.TemporaryDirectory() as folder, Pipeline.open(path, options) as pipeline:
        file = Path(folder) / "text"
        first = long_text(pipeline.tokenizer, _LONG)
        turn = [*first, *pipeline.generate(first, _OPTIONS).token_ids, *first[:_NEW]]
        pipeline.save(file)
        live = pipeline.generate(turn, _OPTIONS)
        runs = []
        for _ in range(_REPEATS):
            pipeline.forget()
            anew = pipeline.generate(turn, _OPTIONS)
            restore_s = _seconds(lambda: pipeline.restore(file))
            goes_on = pipeline.generate(turn, _OPTIONS)
            save_s = _seconds(lambda: pipeline.save(file.with_name("again")))
            runs.append(
                {
                    "anew_ttft_s": anew.metrics.ttft_s,
                    "ttft_s": goes_on.metrics.ttft_s,
                    "reused_tokens": goes_on.metrics.reused_tokens,
                    "as_if_never_saved": goes_on.token_ids == live.token_ids,
                    "as_if_read_again": goes_on.token_ids == anew.token_ids,
                    "save_s": save_s,
                    "restore_s": restore_s,
                    "read_s": _seconds(file.read_bytes),
                }
            )
            recorder.add(kind="run", runtime=runtime, **runs[-1])
        row = {
            "runtime": runtime,
            "prompt_tokens": len(turn),
            "file_bytes": file.stat().st_size,
            "times_sooner": median(run["anew_ttft_s"] / run["ttft_s"] for run in runs),
            **{name: median(run[name] for run in runs) for name in runs[0] if name[-2:] == "_s"},
            **{name: sum(run[name] for run in runs) for name in runs[0] if name[:2] == "as"},
        }
    recorder.add(kind="summary", **row)
    return row


def _seconds(act: Callable[[], object]) -> float:
    begin = perf_counter()
    act()
    return perf_counter() - begin
