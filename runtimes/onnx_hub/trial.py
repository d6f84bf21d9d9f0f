"""Tries a graph of others in a child process: what it computes decides what it is used for.

It may crash, and may compute something else than the rows of a chain: of the last token alone, of
the whole pass rounded together, at positions counted otherwise. Files that were tried are recorded
by their sha256, with the version of ONNX Runtime and the processor.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from edgedec._support.fields import one_line
from edgedec._support.opened_before import OpenedBefore
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.bundle import ready_onnx
from edgedec.bundle.onnx_file import read_model_file
from edgedec.errors import BundleError
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.runtimes._ort.saved import locations
from edgedec.runtimes.onnx_hub.graph import Mode

CHILD = "edgedec.runtimes.onnx_hub._trial_child"
# Enough for an SD card: some minutes of passes, plus the files' bytes at 10 MB a second.
BASE_TIMEOUT_S = 180.0
BYTES_PER_SECOND = 10 << 20
# Beside weights, which are packed for the kernels: Python, libraries, stacks, a small cache.
_SPARE_BYTES, _COPIES = 6 << 30, 6
# Each thread and arena reserves address space, which is limited in the child.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
# From the quickest way to the slowest; the first that computes a decoder's rows is taken.
MODES = (
    *(Mode(shared, multiple) for shared in (True, False) for multiple in (1, 2, 4)),
    *(Mode(shared, alone=True) for shared in (True, False)),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a graph can be used for.

    Attributes:
        mode: how its passes are run.
        why: why a pass has no several rows, where it was tried just now.

    """

    mode: Mode
    why: str = ""

    @property
    def line(self) -> str:
        if self.mode.alone:
            what = f"a draft only: {self.why or 'rows of one pass differ from single ones'}"
        else:
            what = "target or draft: rows of one pass are those of single ones"
        if self.mode.multiple > 1:
            what += f" where a pass is padded to a multiple of {self.mode.multiple} rows"
        return what if self.mode.shared else f"{what}; every pass copies its keys and values"


def found(file: Path) -> Found:
    """Return what a graph can be used for; it is tried once here.

    Args:
        file: the graph, whose facts are beside it.

    Raises:
        BundleError: it is damaged, crashes, or computes no decoder's rows; says which.

    """
    stored = read_model_file(file)
    files = [file, file.with_name(ready_onnx.READY)]
    files += [file.parent / name for name in locations(stored)]
    try:
        known = OpenedBefore("hubonnx", _kernels())
        digest = known.digest(files)
        for mode in MODES:
            if known.opened(_key(digest, mode)):
                known.save()
                return Found(mode)
        tried = _tried(file, sum(one.stat().st_size for one in files))
        if known.digest(files) == digest:
            known.remember(_key(digest, tried.mode))
        known.save()
    except OSError as error:
        raise BundleError(f"{one_line(str(file))} cannot be read: {error.strerror}") from None
    return tried


def _kernels() -> str:
    """Identify the kernels that compute here: ONNX Runtime's, for this kind of processor."""
    fields = cpu_fields()
    facts = cpu_name(), fields.get("flags") or fields.get("features") or ""
    return f"{ort.__version__} {hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def _key(digest: str, mode: Mode) -> str:
    return f"{digest} {MODES.index(mode)}"


def _tried(file: Path, size: int) -> Found:
    limits = Limits(
        memory_bytes=_SPARE_BYTES + _COPIES * size,
        cpu_s=None,
        wall_s=round(BASE_TIMEOUT_S + size / BYTES_PER_SECOND),
    )
    shown = one_line(str(file))
    try:
        answer = ask_once(CHILD, {"path": str(file.resolve())}, limits, environment=_ENVIRONMENT)
    except Stopped as error:
        raise BundleError(f"{shown}: ONNX Runtime cannot run it: {error}") from None
    except Refused as error:
        raise BundleError(str(error)) from None
    return Found(MODES[answer["mode"]], one_line(answer["why"]))
