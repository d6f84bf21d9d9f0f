"""Python processes of our own beside this one, for libraries and data that may end theirs."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO

from edgedec._support.fields import one_line

MAX_OUTPUT_BYTES = 64 << 10
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "module = sys.argv.pop(1); runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module, from where this process finds its modules.

    Isolated: neither the current folder nor the environment adds to them.
    """
    # A script inside the package would put it there, and `edgedec/gguf` in the place of `gguf`.
    package = Path(__file__).resolve().parents[1]
    paths = json.dumps([path for path in sys.path if path and Path(path).resolve() != package])
    return [sys.executable, "-I", "-c", _START, paths, module, *arguments]


def scratch() -> IO[bytes]:
    """A file for what a process complains; nowhere on a system without a folder for such files."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return Path(os.devnull).open("w+b")


def signal_name(code: int) -> str:
    """The signal that ended a process whose exit code is ``-code``, as ``SIGSEGV``."""
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"


def last_line(output: bytes) -> str:
    """The last line a process wrote to its standard error, at most 300 characters."""
    text = output[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line((lines or ["it gave no reason"])[-1])[:300]
