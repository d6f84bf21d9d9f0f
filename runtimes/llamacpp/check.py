"""Checks untrusted GGUF files in a child process, since llama.cpp may abort.

No validation of the header can rule that out, so an unknown file is first opened in a child, which
decodes one token. Files that opened are recorded by their sha256.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from edgedec._support import installation
from edgedec._support.fields import one_line
from edgedec._support.opened_before import OpenedBefore
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import BundleError, ExtraMissing, RuntimeUnavailable
from edgedec.gguf.header import GgufHeader
from edgedec.gguf.parts import decodable_parts, named_parts
from edgedec.hardware.machine import memory
from edgedec.runtimes.llamacpp import INFO

_log = logging.getLogger("edgedec")
PACKAGE = INFO.packages[0]
CHILD = "edgedec.runtimes.llamacpp._check_child"
# Enough for an SD card: a minute, plus the file's bytes at 10 MB a second.
BASE_TIMEOUT_S = 60.0
BYTES_PER_SECOND = 10 << 20
# Heads that llama.cpp computes within its own driver alone.
_BORROWERS = frozenset({"gemma4-assistant"})
_ENVIRONMENT = {
    "GGML_NO_BACKTRACE": "1",  # an abort would start a debugger to print one
    # Each thread and arena reserves address space, which is limited in the child.
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


def first_open(path: str | Path, *, timeout_s: float | None = None) -> GgufHeader:
    """Check in a child process that llama.cpp can open a file.

    A file that opened before with the installed llama.cpp is not checked again, nor hashed again
    while its path, size, time and inode stay the same.

    Args:
        path: a GGUF file, or the first part of a split one.
        timeout_s: how long the child may take; by default a time that grows with the file.

    Returns:
        The file's header.

    Raises:
        BundleError: the file is damaged, not a language model, or llama.cpp cannot open it.
        RuntimeUnavailable: llama-cpp-python is not installed.

    """
    header = GgufHeader.read(path)
    if header.architecture in _BORROWERS:
        raise BundleError(
            f"{one_line(str(path))}: a head that reads its target's cache, without which llama.cpp"
            " ends the process: export its checkpoint with the target's, as --head, in onnx"
        )
    files = decodable_parts(header)
    try:
        remembered = OpenedBefore("gguf", _version())
        digest = remembered.digest(files)
        if not remembered.opened(digest):
            size = sum(file.stat().st_size for file in files)
            _open_in_child(header.path, timeout_s or BASE_TIMEOUT_S + size / BYTES_PER_SECOND)
            if remembered.digest(files) == digest:
                remembered.remember(digest)
        remembered.save()
    except OSError as error:
        raise BundleError(f"{one_line(str(path))} cannot be read: {error.strerror}") from None
    return header


def shows_states(path: Path, layers: Sequence[int], *, timeout_s: float | None = None) -> bool:
    """Return whether llama.cpp shows a model's residual streams before these layers.

    It would end the process if not, so it is asked in a child, once for each file and version.

    Args:
        path: a GGUF file that opens, or the first part of a split one.
        layers: from 0.
        timeout_s: as for ``first_open``.

    """
    files = decodable_parts(GgufHeader.read(path))
    try:
        remembered = OpenedBefore("gguf", _version())  # which has hashed the file already
        asked = f"{remembered.digest(files)} states {list(layers)}"
        if remembered.opened(asked):
            return True
        size = sum(file.stat().st_size for file in files)
        try:
            _open_in_child(path, timeout_s or BASE_TIMEOUT_S + size / BYTES_PER_SECOND, layers)
        except BundleError as error:
            _log.warning("%s: llama.cpp shows no states: %s", path, error)
            return False
        remembered.remember(asked)
        remembered.save()
    except OSError:
        return False
    return True


def _version() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ExtraMissing(installation.needs("a GGUF file", INFO.extra, PACKAGE)) from None


def _open_in_child(path: Path, timeout_s: float, layers: Sequence[int] = ()) -> None:
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=round(timeout_s))
    # Reordered weights are a copy in memory; those of the file are mapped, and may exceed it.
    free = memory().free
    fits = free is None or 2 * sum(file.stat().st_size for file in named_parts(path)) < free
    # Not what a link points to: in the Hub's cache, names of parts are those of links alone.
    task = {"path": os.fspath(path.absolute()), "layers": list(layers), "reorder": fits}
    try:
        ask_once(CHILD, task, limits, environment=_ENVIRONMENT, telling=_last_error)
    except Stopped as error:
        raise BundleError(f"{one_line(str(path))}: llama.cpp cannot open it: {error}") from None
    except Refused as error:
        raise RuntimeUnavailable(f"{PACKAGE} cannot be used here: {error}") from None


def _last_error(output: bytes) -> str:
    """Return the last line that states an error, without the folders of a source file."""
    text = output.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "GGML_ASSERT" in line]
    line = (telling or lines or ["it gave no reason"])[-1]
    line = line.removeprefix("llama_model_load: error loading model: ")
    return one_line(line[max(0, line[: line.find(".cpp:") + 1].rfind("/") + 1) :])
