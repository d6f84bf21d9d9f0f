"""Writes raw records: one JSON object per line, each run with its machine."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from edgedec._support.fields import json_object
from edgedec._support.locks import alone
from edgedec._version import __version__
from edgedec.errors import InputError
from edgedec.hardware.device import available_cores
from edgedec.hardware.machine import cpu_name

# A record, or a row of a table.
Row = dict[str, Any]


class Recorder:
    """Appends records of one benchmark to an open file, and flushes each."""

    def __init__(self, file: TextIO, benchmark: str) -> None:
        self._file = file
        self._benchmark = benchmark
        self.runs: list[dict[str, Any]] = []

    def add(self, **fields: Any) -> None:
        """Write one record; those of the kind ``run`` are kept for summaries as well."""
        if fields.get("kind") == "run":
            self.runs.append(fields)
        line = json.dumps({"benchmark": self._benchmark, **fields})
        self._file.write(line + "\n")
        self._file.flush()

    def table(self, rows: Iterable[Row], kind: str = "summary") -> list[Row]:
        """Write a record for each row of a table; return the rows."""
        found = list(rows)
        for row in found:
            self.add(kind=kind, **row)
        return found


@contextmanager
def recording(folder: Path, benchmark: str) -> Iterator[Recorder]:
    """Create ``<benchmark>.jsonl``, whose first record describes machine and versions."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{benchmark}.jsonl").open("w", encoding="utf-8") as file:
        recorder = Recorder(file, benchmark)
        recorder.add(kind="machine", **machine())
        yield recorder


@contextmanager
def resuming(
    folder: Path, benchmark: str, settings: Mapping[str, Any]
) -> Iterator[tuple[Recorder, list[dict[str, Any]]]]:
    """Open ``<benchmark>.jsonl`` for appending, with the records that are there.

    Each time it is opened, a record of the machine and the settings is added. An incomplete last
    line, left by an interruption, is removed.

    Raises:
        InputError: the file has other settings, a line that is not a record, or another process
            writes to it.

    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.jsonl"
    with alone(path, "another run writes to it: wait for its end, or give another --out"):
        yield from _resuming(path, benchmark, settings)


def _resuming(
    path: Path, benchmark: str, settings: Mapping[str, Any]
) -> Iterator[tuple[Recorder, list[dict[str, Any]]]]:
    found = _earlier(path) if path.exists() else []
    for record in found:
        if record.get("kind") == "machine" and record.get("settings") != settings:
            raise InputError(
                f"{path} has other settings, {record.get('settings')}, now {settings}: "
                "give another --out, or delete it"
            )
    with path.open("a", encoding="utf-8") as file:
        recorder = Recorder(file, benchmark)
        recorder.add(kind="machine", settings=settings, **machine())
        yield recorder, found


def _earlier(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        os.truncate(path, len(whole))
    found = []
    for number, line in enumerate(whole.splitlines(), 1):
        record = json_object(line)
        if record is None:
            raise InputError(f"{path}:{number}: not a record: delete the line, or the file")
        found.append(record)
    return found


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
