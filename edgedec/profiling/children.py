"""Measures in child processes, so that a crash, hang or failure at one place does no harm."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support.fields import from_json, to_json
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, ProfileError
from edgedec.profiling.parity import Rows
from edgedec.records.place import Place
from edgedec.records.profile import Measured, Parity

CHILD = "edgedec.profiling._child"
# File of the rows of logits to compare; all other figures are in the child's answer.
LOGITS = "logits.npy"
# An abort would start a debugger to print a stack trace.
QUIET = {"GGML_NO_BACKTRACE": "1"}


TARGET, DRAFT, HEAD = "target", "draft", "head"


@dataclass(frozen=True, slots=True)
class MeasurementJob:
    """One model at one place, to be measured.

    Attributes:
        role: ``target``, ``draft`` or ``head``.
        path: the model's main file.
        sample: tokens of some text in the model's own vocabulary.
        contexts: numbers of cached tokens to measure passes at, ascending.
        widths: numbers of rows to measure, most important first.
        budget_s: time for each context, in seconds.

    """

    role: str
    path: str
    place: Place
    sample: tuple[int, ...]
    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    budget_s: float
    files: tuple[str, ...] = ()

    @property
    def batch_invariant(self) -> bool | None:
        """Batch invariance as the loader would set it; None (automatic) for the target only."""
        return None if self.role == TARGET else False


@dataclass(frozen=True, slots=True)
class PlaceOutcome:
    """Result of measuring a place.

    Attributes:
        measured: if it failed, ``parity.usable`` is False and gives the reason.
        logits: rows to compare, ``[rows, vocab]``; None if it failed.

    """

    measured: Measured
    logits: Rows | None


def measure(job: MeasurementJob, limit_s: float, module: str = CHILD) -> PlaceOutcome:
    """Measure one model at one place.

    Args:
        limit_s: seconds after which the place is considered to hang.

    """
    with tempfile.TemporaryDirectory(prefix="edgedec-") as folder:
        try:
            answer = _ask(module, {"job": to_json(job), "folder": folder}, limit_s)
            measured = from_json(Measured, answer, "measured", ProfileError)
            return PlaceOutcome(measured, np.load(Path(folder) / LOGITS, allow_pickle=False))
        except (Stopped, Refused) as error:
            reason = str(error)
        except (OSError, ValueError, EdgedecError):
            reason = "it ended without a result"
    return PlaceOutcome(failed(job, reason), None)


def _ask(module: str, task: Any, limit_s: float) -> Any:
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=round(limit_s, 1))
    return ask_once(module, task, limits, environment=QUIET)


def failed(job: MeasurementJob, reason: str) -> Measured:
    """Return the record of a place that cannot be used, with the reason."""
    return Measured(
        role=job.role, name=Path(job.path).name, place=job.place, times=(), prefill_s=0.0,
        load_s=0.0, rss_bytes=0, weight_bytes=0, kv_bytes_per_token=0, max_context=0,
        vocab_size=0, row_widths=None, branches=1,
        parity=Parity(0.0, 0.0, usable=False, reason=reason), steady=True, rolls_back=True,
    )  # fmt: skip
