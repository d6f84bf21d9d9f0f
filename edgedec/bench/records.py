"""Writes raw records: one JSON object per line, each run with its machine."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from edgedec._version import __version__
from edgedec.hardware.device import available_cores


class Recorder:
    """Appends records of one benchmark to an open file, and flushes each."""

    def __init__(self, file: TextIO, benchmark: str) -> None:
        self._file = file
        self._benchmark = benchmark

    def add(self, **fields: Any) -> None:
        """Write one record."""
        line = json.dumps({"benchmark": self._benchmark, **fields})
        self._file.write(line + "\n")
        self._file.flush()


@contextmanager
def recording(folder: Path, benchmark: str) -> Iterator[Recorder]:
    """Open a fresh ``<benchmark>.jsonl`` whose first record describes machine and versions."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{benchmark}.jsonl").open("w", encoding="utf-8") as file:
        recorder = Recorder(file, benchmark)
        recorder.add(kind="machine", **machine())
        yield recorder


def machine() -> dict[str, Any]:
    """Return the facts of the machine that a reader of a figure needs."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "edgedec": __version__,
        "onnxruntime": version("onnxruntime"),
        "numpy": version("numpy"),
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
