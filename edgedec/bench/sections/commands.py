"""Measures whole commands: seconds and peak memory of their processes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.bench.records import Recorder
from edgedec.bench.workshop import Workshop
from edgedec.errors import InputError

PROMPT = "def read_lines(path):"


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A finished process: its output, its duration and its peak memory."""

    output: str
    seconds: float
    peak_bytes: int


# A small process between this one and the command: a child's peak includes its parent's memory at
# the fork, and this process may hold gigabytes.
_TIMED = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([done.returncode, done.stdout, done.stderr, seconds, peak]))
"""


def run(*arguments: str | Path) -> CommandRun:
    """Run ``edgedec`` with these arguments.

    Raises:
        InputError: it failed; the message is its output.

    """
    command = [sys.executable, "-m", "edgedec", *map(str, arguments)]
    timed = subprocess.run(
        [sys.executable, "-c", _TIMED, *command], stdout=subprocess.PIPE, text=True, check=True
    )
    code, output, said, seconds, peak = json.loads(timed.stdout)
    if code != 0:
        raise InputError(f"{' '.join(command)}: {said.strip()}")
    # In kilobytes, except on macOS.
    return CommandRun(output, seconds, peak * (1 if sys.platform == "darwin" else 1024))


@dataclass(frozen=True, slots=True)
class TimedExport:
    """A finished export: its report as printed by ``--json``, and a row for a table."""

    report: dict[str, Any]
    row: dict[str, object]


def export(shop: Workshop, source: Path, recorder: Recorder, *arguments: str) -> TimedExport:
    """Measure the export of a checkpoint with parity, by the defaults unless arguments differ."""
    out = shop.work / "export-timed"
    run_ = run("export", source, "--out", out, "--overwrite", "--json", *arguments)
    report = {key: fact for key, fact in json.loads(run_.output).items() if key != "path"}
    (model,) = report["models"]
    row: dict[str, object] = {
        "source": model["name"],
        "arguments": " ".join(arguments),
        "seconds": run_.seconds,
        "peak_bytes": run_.peak_bytes,
    }
    recorder.add(kind="export", **row, report=report)
    return TimedExport(report, row)


def memory(bundle: Path, recorder: Recorder) -> list[dict[str, object]]:
    """Measure the peak memory of decoding against weights x 1.2 + cache + 200 MB."""
    found = json.loads(
        run(
            *("generate", PROMPT, "--bundle", bundle, "--json"),
            *("--max-new-tokens", "200", "--max-context", "1024"),
        ).output
    )
    weights = sum(file.stat().st_size for file in bundle.rglob("*.onnx*"))
    limit = 1.2 * weights + found["plan"]["kv_bytes"] + 200e6
    row: dict[str, object] = {
        "peak_bytes": found["peak_memory_bytes"],
        "weight_bytes": weights,
        "kv_bytes": found["plan"]["kv_bytes"],
        "limit_bytes": limit,
        "of_limit": found["peak_memory_bytes"] / limit,
    }
    recorder.add(kind="memory", **row)
    return [row]
