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

from edgedec._support.fields import json_object, one_line
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
def resuming_alone(
    folder: Path, benchmark: str, settings: Mapping[str, Any]
) -> Iterator[tuple[Recorder, list[dict[str, Any]]]]:
    """Resume a file that one process writes at a time; a file ``.lock`` stays next to it.

    Raises:
        InputError: as ``resuming``, or another process writes to it.

    """
    folder.mkdir(parents=True, exist_ok=True)
    busy = "another run writes to it: wait for its end, or give another --out"
    with (
        alone(folder / f"{benchmark}.jsonl", busy),
        resuming(folder, benchmark, settings) as opened,
    ):
        yield opened


@contextmanager
def resuming(
    folder: Path, benchmark: str, settings: Mapping[str, Any]
) -> Iterator[tuple[Recorder, list[dict[str, Any]]]]:
    """Open ``<benchmark>.jsonl`` for appending, with the records that are there.

    Each time it is opened, a record of the machine and the settings is added. An incomplete last
    line, left by an interruption, is removed.

    Raises:
        InputError: the file has other settings, or a line that is not a record.

    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.jsonl"
    found = _earlier(path) if path.exists() else []
    now = json.loads(json.dumps(settings))  # as it will be read: tuples become lists
    for record in found:
        before = record.get("settings")
        if record.get("kind") == "machine" and before != now:
            before = before if isinstance(before, dict) else {}
            names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            raise InputError(
                f"{path}: a run with other {one_line(', '.join(names)).replace('_', ' ')}: repeat"
                " its command to continue, delete the file to start again, or give another folder"
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
