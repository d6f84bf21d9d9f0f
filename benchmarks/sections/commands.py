"""Measures whole commands, mostly exports: seconds and peak memory of their processes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bundles import GROWN, LARGER, Bundles, Suite
from benchmarks.sections.coreml_spread import spread
from edgedec.compare.records import Recorder, Row
from edgedec.errors import InputError
from edgedec.models.demo.heldout import heldout_files

PROMPT = "def read_lines(path):"
_ROUNDED_PLAINLY = ("--weights", "int4", "--calibration", "none")
_COREML = (
    (None, ("--weights", "fp16")),
    (None, ("--weights", "int8")),
    (None, ("--weights", "int4")),
    (None, ("--weights", "lut4")),
    (GROWN, _ROUNDED_PLAINLY),
    (LARGER, _ROUNDED_PLAINLY),
)
_PLAIN = ("--calibration", "none", "--block-size")
_ROUNDINGS: dict[str, tuple[str, ...]] = {
    "plain, blocks of 32": (*_PLAIN, "32"),
    "plain, blocks of 128": (*_PLAIN, "128"),
    "calibrated, blocks of 32": ("--block-size", "32"),
    "calibrated, blocks of 128": (),
}
# Several times as much as an export compares on, so that every file contributes.
_CHARACTERS = 8192


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A finished process: its output, its duration and its peak memory."""

    output: str
    seconds: float
    peak_bytes: int


# A small process between this one and the command, since a child's peak includes the memory of its
# parent at the fork, and this process may hold gigabytes.
_TIMED = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([done.returncode, done.stdout, done.stderr, seconds, peak]))
"""


def run(*arguments: str | Path) -> CommandRun:
    """Run ``edgedec`` with these arguments; InputError has the output of a failed run."""
    command = [sys.executable, "-m", "edgedec", *map(str, arguments)]
    timed = subprocess.run(
        [sys.executable, "-c", _TIMED, *command], stdout=subprocess.PIPE, text=True, check=True
    )
    code, output, errors, seconds, peak = json.loads(timed.stdout)
    if code != 0:
        raise InputError(f"{' '.join(command)}: {errors.strip()}")
    # In kilobytes, except on macOS.
    return CommandRun(output, seconds, peak * (1 if sys.platform == "darwin" else 1024))


@dataclass(frozen=True, slots=True)
class TimedExport:
    """A finished export: its report as printed by ``--json``, and a row for a table."""

    report: dict[str, Any]
    row: Row


def export(bundles: Bundles, source: Path, recorder: Recorder, *arguments: str) -> TimedExport:
    """Measure the export of a checkpoint with parity, with defaults unless arguments are given."""
    out = bundles.work / "export-timed"
    run_ = run("export", source, "--out", out, "--overwrite", "--json", *arguments)
    report = {key: fact for key, fact in json.loads(run_.output).items() if key != "path"}
    (model,) = report["models"]
    row: Row = {
        "source": model["name"],
        "arguments": " ".join(arguments),
        "seconds": run_.seconds,
        "peak_bytes": run_.peak_bytes,
    }
    recorder.add(kind="export", **row, report=report)
    return TimedExport(report, row)


def memory(bundle: Path, recorder: Recorder) -> list[Row]:
    """Measure the peak memory of decoding against weights x 1.2 + cache + 200 MB."""
    found = json.loads(
        run(
            *("generate", PROMPT, "--bundle", bundle, "--json"),
            *("--max-new-tokens", "200", "--max-context", "1024"),
        ).output
    )
    weights = sum(file.stat().st_size for file in bundle.rglob("*.onnx*"))
    limit = 1.2 * weights + found["plan"]["kv_bytes"] + 200e6
    row: Row = {
        "peak_bytes": found["peak_memory_bytes"],
        "weight_bytes": weights,
        "kv_bytes": found["plan"]["kv_bytes"],
        "limit_bytes": limit,
        "of_limit": found["peak_memory_bytes"] / limit,
    }
    recorder.add(kind="memory", **row)
    return [row]


def whole(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure whole commands: exports of the target grown to two sizes, memory of decoding."""
    sizes = suite.bundles.sizes(grown=GROWN, larger=LARGER).values()
    sources = [suite.bundles.checkpoint("target", preset) for preset in sizes]
    exports = [export(suite.bundles, source, recorder).row for source in sources]
    return [*exports, *memory(suite.bundles.bundle("int4", target=GROWN), recorder)]


def gguf_export(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the export of the grown target to q4_k_m, including parity."""
    arguments = ("--format", "gguf", "--weights", "q4_k_m")
    return [
        export(suite.bundles, suite.bundles.checkpoint("target", GROWN), recorder, *arguments).row
    ]


def coreml(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure exports of the target to CoreML, as it ships and grown, and rounding to fp16."""
    rows: list[Row] = []
    for preset, weights in _COREML:
        source = suite.bundles.checkpoint("target", preset)
        arguments = ("--format", "coreml", "--max-context", "512", *weights)
        timed = export(suite.bundles, source, recorder, *arguments)
        (model,) = timed.report["models"]
        rows.append({"parameters": model["parameters"], **timed.row, "parity": model["parity"]})
    return [*rows, *spread(suite, recorder)]


def rounding(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare int4 exports of target and draft with their sources on held-out code."""
    rows: list[Row] = []
    text = _heldout_text(suite.bundles.work / "held-out.txt")
    for role in ("target", "draft"):
        source = suite.bundles.checkpoint(role)
        for name, arguments in _ROUNDINGS.items():
            asked = (*arguments, "--parity-text", str(text))
            (model,) = export(suite.bundles, source, recorder, *asked).report["models"]
            found = {key: model["parity"][key] for key in ("kl_nats", "top1", "perplexity")}
            size = model["size_bytes"]
            rows.append({"role": role, "rounding": name, "size_bytes": size, **found})
    return rows


def _heldout_text(file: Path) -> Path:
    files = heldout_files()
    parts = [one.read_text("utf-8", errors="replace")[: _CHARACTERS // len(files)] for one in files]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts), "utf-8")
    return file


SECTIONS = (whole, gguf_export, coreml, rounding)
