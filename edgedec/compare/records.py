"""Writes raw records: one JSON object per line, each run with its machine."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line
from edgedec._support.json_lines import JsonLines
from edgedec._support.locks import alone
from edgedec._version import __version__
from edgedec.errors import InputError
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
        """Write a record for each row of a table; return the rows."""
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
    path, found = folder / f"{benchmark}.jsonl", list[Row]()
    now = json.loads(json.dumps(settings))  # as it will be read: tuples become lists

    def earlier(record: Row | None, where: str) -> None:
        if record is None:
            raise InputError(f"{where}: not a record: delete the line, or the file")
        if record.get("kind") == "machine":
            _check_settings(path, record.get("settings"), now)
        found.append(record)

    with closing(JsonLines(path, "benchmark", earlier)) as lines:
        recorder = Recorder(lines.add, benchmark)
        recorder.add(kind="machine", settings=settings, **machine())
        yield recorder, found


def _check_settings(path: Path, before: Any, now: Row) -> None:
    if before == now:
        return
    before = before if isinstance(before, dict) else {}
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    raise InputError(
        f"{path}: a run with other {one_line(', '.join(names)).replace('_', ' ')}: repeat"
        " its command to continue, delete the file to start again, or give another folder"
    )


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
