"""Files of records that an interrupted run goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line
from edgedec._support.json_lines import JsonLines
from edgedec._support.locks import alone
from edgedec.compare.records import Recorder, Row, machine
from edgedec.errors import InputError


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
