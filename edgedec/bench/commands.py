"""The command line from outside: seconds and peak memory of whole processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from time import perf_counter

from edgedec.bench.grown import Workshop
from edgedec.bench.records import Recorder
from edgedec.errors import InputError

PROMPT = "def read_lines(path):"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished process: what it printed, how long it took, the most memory it had."""

    output: str
    seconds: float
    peak_bytes: int


def run(*arguments: str | Path) -> Run:
    """Run ``edgedec`` with these arguments.

    Raises:
        InputError: it failed; the message is what it said.
    """
    command = [sys.executable, "-m", "edgedec", *map(str, arguments)]
    begin = perf_counter()
    with TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        output = process.stdout.read().decode()
        # Reaped here and not by subprocess: the usage of this one child comes with it.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if process.returncode != 0:
            said.seek(0)
            raise InputError(f"{' '.join(command)}: {said.read().decode(errors='replace')}")
    # Kilobytes everywhere but on macOS.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(output, seconds, peak)


def export(shop: Workshop, preset: str, recorder: Recorder) -> list[dict[str, object]]:
    """Export of a grown target to int4, parity included."""
    out = shop.work / "export-timed"
    run_ = run("export", shop.checkpoint("target", preset), "--out", out, "--overwrite", "--json")
    row: dict[str, object] = {
        "preset": preset,
        "seconds": run_.seconds,
        "peak_bytes": run_.peak_bytes,
    }
    recorder.add(kind="export", **row, report=json.loads(run_.output))
    return [row]


def memory(bundle: Path, recorder: Recorder) -> list[dict[str, object]]:
    """Peak memory of decoding against weights x 1.2 + cache + 200 MB."""
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


def first_token(bundle: str | Path, recorder: Recorder, runs: int = 7) -> list[dict[str, object]]:
    """From the command typed to its end, after one token; the first run is not counted."""
    ask = ("generate", PROMPT, "--bundle", bundle, "--max-new-tokens", "1")
    seconds = [run(*ask).seconds for _ in range(runs + 1)][1:]
    row: dict[str, object] = {"median_s": median(seconds), "worst_s": max(seconds), "runs": runs}
    recorder.add(kind="first_token", **row, seconds=seconds)
    return [row]
