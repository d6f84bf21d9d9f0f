"""Writes raw records: one JSON object per line, each run with its machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgedec._support.json_lines import JsonLines
from edgedec._version import __version__
from edgedec.hardware.device import available_cores
from edgedec.hardware.machine import cpu_name

# A record, or a row of a table.
Row = dict[str, Any]


class Recorder:
    """Adds records of one benchmark with a function, such as ``JsonLines.add``."""

    def __init__(self, add: Callable[[Row], object], benchmark: str) -> None:
        self._add = add
        self._benchmark = benchmark
        self.runs: list[Row] = []

    def add(self, **fields: Any) -> None:
        """Add one record; those of the kind ``run`` are kept for summaries as well."""
        if fields.get("kind") == "run":
            self.runs.append(fields)
        self._add({"benchmark": self._benchmark, **fields})

    def table(self, rows: Iterable[Row], kind: str = "summary") -> list[Row]:
        found = list(rows)
        for row in found:
            self.add(kind=kind, **row)
        return found


@contextmanager
def recording(folder: Path, benchmark: str) -> Iterator[Recorder]:
    """Create ``<benchmark>.jsonl``, whose first record describes machine and versions."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.jsonl"
    path.write_bytes(b"")
    with closing(JsonLines(path, "benchmark", lambda *_: None)) as lines:
        recorder = Recorder(lines.add, benchmark)
        recorder.add(kind="machine", **machine())
        yield recorder


def machine() -> dict[str, Any]:
    """Return the facts about the machine that are needed to interpret a figure."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": cpu_name(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "edgedec": __version__,
        "onnxruntime": version("onnxruntime"),
        "numpy": version("numpy"),
    }
