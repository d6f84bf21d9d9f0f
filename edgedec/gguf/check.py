"""The first look at an untrusted GGUF: in a child process, since llama.cpp may end its own.

No validation of the header can rule that out, so a file nobody opened yet is opened by llama.cpp
in a child first, which decodes one token. What opened is remembered by its sha256.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from pathlib import Path

from edgedec._support import installation, isolated
from edgedec._support.fields import one_line
from edgedec._support.vetted import Vetted
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.gguf.header import GgufHeader
from edgedec.gguf.parts import decodable_parts

PACKAGE = "llama-cpp-python"
CHILD = "edgedec.gguf._child"
# Enough for an SD card: a minute, and as long as its bytes take at 10 MB a second.
BASE_TIMEOUT_S = 60.0
BYTES_PER_SECOND = 10 << 20
_QUIET_AND_SMALL = {
    "GGML_NO_BACKTRACE": "1",  # an abort would start a debugger to print one
    # Each thread and arena reserves address space, which the child bounds.
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}
EXIT_REFUSED, EXIT_UNAVAILABLE = 3, 4


def first_open(path: str | Path, *, timeout_s: float | None = None) -> GgufHeader:
    """Make sure that llama.cpp can open a file without harm to this process.

    A file that opened before with the installed llama.cpp is not opened again, nor is it read
    whole again while its path, size, time and inode stay the same.

    Args:
        path: a GGUF file, or the first part of a split one.
        timeout_s: how long the child may take; by default a time that grows with the file.

    Returns:
        The file's header.

    Raises:
        BundleError: the file is damaged, no language model, or llama.cpp cannot open it.
        RuntimeUnavailable: llama-cpp-python is not installed.

    """
    header = GgufHeader.read(path)
    files = decodable_parts(header)
    try:
        remembered = Vetted("gguf", _version())
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


def _version() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeUnavailable(
            f"a GGUF file needs the package {PACKAGE}: {installation.install(extra='gguf')}"
        ) from None


def _open_in_child(path: Path, timeout_s: float) -> None:
    command = isolated.python(CHILD, str(path.resolve()))
    environment = {**os.environ, **_QUIET_AND_SMALL}
    with isolated.scratch() as output:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output,
                env=environment, timeout=timeout_s, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _refused(path, f"it took longer than {timeout_s:.0f} s") from None
        if code == 0:
            return
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - isolated.MAX_OUTPUT_BYTES))
        reason = _last_error(output.read().decode("utf-8", "replace"))
    if code == EXIT_UNAVAILABLE:
        raise RuntimeUnavailable(f"{PACKAGE} cannot be used here: {reason}")
    if code < 0:
        reason = f"it crashed with {isolated.signal_name(-code)}: {reason}"
    raise _refused(path, reason)


def _refused(path: Path, reason: str) -> BundleError:
    return BundleError(f"{one_line(str(path))}: llama.cpp cannot open it: {reason}")


def _last_error(output: str) -> str:
    """The last line that says what went wrong, without the folders of a source file."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "GGML_ASSERT" in line]
    line = (telling or lines or ["it gave no reason"])[-1]
    line = line.removeprefix("llama_model_load: error loading model: ")
    return one_line(line[max(0, line[: line.find(".cpp:") + 1].rfind("/") + 1) :])
