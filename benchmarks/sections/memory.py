"""Measures whether ``--memory`` is respected, and whether the memory model is accurate.

Each run is a process that reads 4,000 tokens and generates 2,000 with drafted trees: first with
more memory than it can use, then with less than the model gives it, then with ballast that the same
process allocates in the middle half of the text. Limited runs are in a control group with 3% more
than the limit, if one can be created, in which a process that exceeds it is killed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bundles import Suite
from benchmarks.sections import control_group
from benchmarks.workloads import heldout_tokens
from edgedec.compare.records import Recorder
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import EdgedecError
from edgedec.hardware.resident import peak_bytes
from edgedec.loading.options import OpenOptions
from edgedec.memory.grant import with_spare
from edgedec.pipeline import GenerateOptions, Pipeline

_TOLERANCE = 1.03
PLENTY = 16_000_000_000
# Share of the memory that the model gives a run without a limit, and how many bytes the ballast is
# larger than what that run has left over at its peak: more than the rest of a text takes, less than
# drafts give up.
_LESS, _BALLAST = 0.99, 13_000_000


@dataclass(frozen=True, slots=True)
class Pair:
    """Models to measure, the drafter, and the length of their text."""

    name: str
    path: Path
    draft: Path | None = None
    prompt: int = 4000
    new: int = 2000
    drafter: str = "adaptive"


def memory_held(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Decode within memory limits on both runtimes; compare peaks with the limit and the model."""
    bundles = suite.bundles
    pairs = [
        Pair("onnx", bundles.bundle("int4")),
        Pair("llamacpp", bundles.gguf("target", "q4_0"), bundles.gguf("draft", "q8_0")),
    ]
    return [row for pair in pairs for row in measure(pair, recorder, suite.threads)]


def measure(pair: Pair, recorder: Recorder, threads: int | None) -> list[dict[str, Any]]:
    """Measure one pair: with ample memory, with less, and with ballast."""
    plenty = run(pair, threads, PLENTY)
    rows = [_row(recorder, pair, "plenty", plenty)]
    less = int(_LESS * plenty["memory"]["expected_bytes"])
    rows.append(_row(recorder, pair, "less", run(pair, threads, less, confined=less)))
    rows.append(_row(recorder, pair, "ballast", with_ballast(pair, threads, plenty)))
    return rows


def with_ballast(pair: Pair, threads: int | None, plenty: dict[str, Any]) -> dict[str, Any]:
    """Decode within what suffices without the ballast, and not beside it; see ``run``.

    Args:
        pair: the models.
        threads: threads of each model.
        plenty: what a run of this pair without a limit found.

    """
    peak = plenty["peak_bytes"]
    enough = with_spare(max(plenty["memory"]["expected_bytes"], peak))
    ballast = enough - peak + _BALLAST
    return run(pair, threads, enough, ballast=ballast, confined=enough)


def run(
    pair: Pair,
    threads: int | None,
    memory: int,
    *,
    ballast: int = 0,
    confined: int = 0,
    temperature: float = 0.0,
) -> dict[str, Any]:
    """Decode in a process; return its memory figures.

    Args:
        pair: the models.
        threads: threads of each model.
        memory: the limit in bytes.
        ballast: bytes that the process allocates for other purposes.
        confined: bytes of a control group, to which 3% are added; 0 creates none.
        temperature: sampling temperature.

    Raises:
        EdgedecError: the limit was refused.

    """
    task = _task(pair, threads, memory) | {"temperature": temperature, "ballast": ballast}
    arguments = ["-m", "benchmarks.sections.memory", json.dumps(task)]
    with control_group.limited(int(_TOLERANCE * confined)) if confined else nullcontext() as group:
        done = control_group.run(arguments, group)
        peak = None if group is None else group.peak
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        # The system kills a process that exceeds its group's limit.
        return {"ended": done.returncode, "group_peak_bytes": peak, "granted_bytes": memory}
    found: dict[str, Any] = json.loads(lines[-1])
    if "refused" in found:
        raise EdgedecError(found["refused"])
    return {**found, "granted_bytes": memory, "group_peak_bytes": peak}


def _task(pair: Pair, threads: int | None, memory: int) -> dict[str, Any]:
    return {
        "path": str(pair.path),
        "draft": None if pair.draft is None else str(pair.draft),
        "open": {
            "drafter": pair.drafter,
            "draft_length": 16,
            "draft_context": None,  # a large cache, so that the guard can release something
            "max_context": pair.prompt + pair.new + 20,
            "memory": memory,
            "threads": threads,
        },
        "prompt_tokens": pair.prompt,
        "new_tokens": pair.new,
    }


def _row(recorder: Recorder, pair: Pair, kind: str, found: dict[str, Any]) -> dict[str, Any]:
    recorder.add(kind="run", pair=pair.name, run=kind, **found)
    if "ended" in found:
        return {"pair": pair.name, "run": kind, "ended": found["ended"]}
    memory = found["memory"]
    return {
        "pair": pair.name,
        "run": kind,
        "peak_mb": found["peak_bytes"] / 1e6,
        "of_granted": found["peak_bytes"] / found["granted_bytes"],
        "account_of_peak": memory["expected_bytes"] / found["peak_bytes"],
        "events": " > ".join(
            f"{event['after']} at {event['emitted']}" for event in memory["events"]
        ),
        "tokens_per_second": found["tokens_per_second"],
        "text": found["text"],
    }


# -- in the child process ------------------------------------------------------------------------


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Decode according to the task.

    Args:
        task: ``path``, ``draft``, ``open`` (options), ``prompt_tokens``, ``new_tokens``,
            ``temperature``, and ``ballast``: bytes that the process allocates for other purposes
            in the middle half of the text.

    """
    draft = task["draft"]
    options = OpenOptions(plan="none", draft=None if draft is None else Path(draft), **task["open"])
    sampling = SamplingParams(temperature=task["temperature"], seed=1)
    asked = GenerateOptions(task["new_tokens"], sampling, ignore_eos=True)
    with Pipeline.open(task["path"], options) as pipeline:
        prompt = heldout_tokens(pipeline.tokenizer, task["prompt_tokens"])
        ballast, quarter = bytearray(), task["new_tokens"] // 4
        stream = pipeline.stream(prompt, asked)
        for number, _ in enumerate(stream):
            if number == quarter and task["ballast"]:
                ballast = bytearray(b"\1") * task["ballast"]
            elif number == 3 * quarter:
                ballast = bytearray()
        del ballast
    result = stream.result
    assert result is not None
    assert result.metrics.memory is not None
    return {
        "max_context": result.plan["max_context"],
        "tokens_per_second": result.metrics.tokens_per_second,
        "drafted": dict(result.metrics.sources),
        "text": hashlib.sha256(json.dumps(result.token_ids).encode()).hexdigest()[:16],
        "tokens": len(result.token_ids),
        "memory": result.metrics.memory.facts(),
        "peak_bytes": peak_bytes(),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))  # noqa: T201
    except EdgedecError as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201
