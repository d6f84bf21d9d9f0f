"""Measurements in processes of their own: a place that crashes, hangs or fails is only that."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import isolated
from edgedec._support.typed_json import from_json, to_json
from edgedec.errors import EdgedecError, ProfileError
from edgedec.profiling.job import Job, Together
from edgedec.profiling.parity import Rows
from edgedec.records.profile import Contention, Measured, Parity

CHILD, PAIR_CHILD = "edgedec.profiling._child", "edgedec.profiling._pair_child"
# An abort would start a debugger to print where.
_QUIET = {"GGML_NO_BACKTRACE": "1"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a place.

    Attributes:
        measured: with ``parity.usable`` False and its reason where it failed.
        logits: rows to compare, ``[rows, vocab]``; None where it failed.

    """

    measured: Measured
    logits: Rows | None


def measure(job: Job, limit_s: float, module: str = CHILD) -> Outcome:
    """One model at one place.

    Args:
        job: what to measure.
        limit_s: seconds after which the place counts as hanging.
        module: what runs in the child.

    """
    with tempfile.TemporaryDirectory(prefix="edgedec-") as folder:
        reason = _run(module, to_json(job), Path(folder), limit_s)
        if not reason:
            try:
                return _read(Path(folder))
            except (OSError, ValueError, EdgedecError):
                reason = "it ended without a result"
    return Outcome(failed(job, reason), None)


def together(pair: Together, limit_s: float, module: str = PAIR_CHILD) -> Contention | None:
    """How two models slow each other; None where that could not be measured."""
    with tempfile.TemporaryDirectory(prefix="edgedec-") as folder:
        if _run(module, to_json(pair), Path(folder), limit_s):
            return None
        try:
            raw = json.loads((Path(folder) / "contention.json").read_text("utf-8"))
            return from_json(Contention, raw, "contention", ProfileError)
        except (OSError, ValueError, EdgedecError):
            return None


def failed(job: Job, reason: str) -> Measured:
    """A place that cannot be used, and why."""
    return Measured(
        role=job.role, name=Path(job.path).name, place=job.place, times=(), prefill_s=0.0,
        launch_s=0.0, transfer_s=0.0, load_s=0.0, rss_bytes=0, weight_bytes=0,
        kv_bytes_per_token=0, max_context=0, vocab_size=0, row_widths=None, branches=1,
        parity=Parity(0.0, 0.0, usable=False, reason=reason), steady=True, rolls_back=True,
    )  # fmt: skip


def _read(folder: Path) -> Outcome:
    from edgedec.profiling._child import LOGITS, MEASURED

    raw = json.loads((folder / MEASURED).read_text("utf-8"))
    measured = from_json(Measured, raw, MEASURED, ProfileError)
    return Outcome(measured, np.load(folder / LOGITS, allow_pickle=False))


def _run(module: str, job: Any, folder: Path, limit_s: float) -> str:
    """Why it failed, else empty."""
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job), "utf-8")
    command = isolated.python(module, str(job_file), str(folder))
    with isolated.scratch() as output:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output,
                env={**os.environ, **_QUIET}, timeout=limit_s, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"it took longer than {limit_s:.0f} s"
        if code == 0:
            return ""
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - isolated.MAX_OUTPUT_BYTES))
        said = isolated.last_line(output.read())
    if code < 0:
        return f"it crashed with {isolated.signal_name(-code)}: {said}"
    return said
