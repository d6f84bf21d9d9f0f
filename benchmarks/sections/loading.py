"""Measures loading: its time and memory with and without edgedec's cached files for a model.

Each load is a process. Configurations alternate, and the files are in the page cache, since each
has been read before; only ratios within one round are meaningful.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError

_TURNS = 5
FIRST, KNOWN, PACKED = "first load", "padding known", "padding known, weights packed"
WAYS = (FIRST, KNOWN, PACKED)


def loading(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure loads of the grown target: the first, with its padding known, and packed."""
    bundle = suite.bundles.bundle("int4", target=GROWN)
    with _caches(suite.bundles.work / "loading-caches", bundle, recorder) as caches:
        runs: dict[str, list[Row]] = {way: [] for way in WAYS}
        for turn in range(_TURNS):
            for way in WAYS[:: 1 if turn % 2 else -1]:
                if way == FIRST:
                    shutil.rmtree(caches[way], ignore_errors=True)
                (found,) = _load(bundle, caches[way], 1)
                recorder.add(kind="run", way=way, turn=turn, **found)
                runs[way].append(found)
        if len({found["logits"] for some in runs.values() for found in some}) != 1:
            raise EdgedecError("the logits of these loads are not bitwise equal")
        rows = [_row(way, runs[way], _load(bundle, caches[way], 2), recorder) for way in WAYS]
    return recorder.table(rows)


@contextmanager
def _caches(folder: Path, bundle: Path, recorder: Recorder) -> Iterator[dict[str, Path]]:
    """Create a cache for each configuration, removed afterwards; the last has packed weights."""
    shutil.rmtree(folder, ignore_errors=True)
    caches = {way: folder / str(at) for at, way in enumerate(WAYS)}
    try:
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "edgedec", "prepare", os.fspath(bundle), "--json"],
            env=_environment(caches[PACKED]), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            last = "".join(done.stderr.strip().splitlines()[-1:])
            raise EdgedecError(f"edgedec prepare: {last}")
        seconds = time.perf_counter() - begin
        recorder.add(kind="prepare", command_s=seconds, **json.loads(done.stdout))
        for way in (KNOWN, PACKED):
            _load(bundle, caches[way], 1)
        yield caches
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(way: str, alone: list[Row], both: list[Row], recorder: Recorder) -> Row:
    """Return medians of the loads, and the memory of two processes that run at the same time."""
    for found in both:
        recorder.add(kind="run of two", way=way, **found)

    def grown(kind: str, some: list[Row]) -> float:
        held = [(found["held"].get(kind, 0), found["before"].get(kind, 0)) for found in some]
        return float(median(now - before for now, before in held))

    return {
        "way": way,
        "load_s": median(found["load_s"] for found in alone),
        "private_bytes": grown("private", alone),
        "mapped_bytes": grown("mapped", alone),
        "reclaimable_bytes": grown("reclaimable", alone),
        "proportional_bytes_of_two": grown("proportional", both),
    }


def _environment(cache: Path) -> dict[str, str]:
    return os.environ | {"EDGEDEC_CACHE": os.fspath(cache), "XDG_CACHE_HOME": os.fspath(cache)}


def _load(bundle: Path, cache: Path, count: int) -> list[Row]:
    """Load a bundle's target in several processes; return each one's memory when all are loaded."""
    from edgedec.models.demo import BUNDLE

    command = [sys.executable, "-m", "benchmarks.sections._loading_child"]
    command += [os.fspath(bundle / "target"), os.fspath(BUNDLE / "target")]
    running = [
        subprocess.Popen(
            command, env=_environment(cache), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(count)
    ]  # fmt: skip
    try:
        found = [_line(process) for process in running]
        for process, facts in zip(running, found, strict=True):
            _of(process.stdin).write("\n")
            _of(process.stdin).flush()
            facts |= _line(process)
        return found
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _line(process: subprocess.Popen[str]) -> Row:
    line = _of(process.stdout).readline()
    if not line:
        last = "".join(_of(process.stderr).read().strip().splitlines()[-1:])
        raise EdgedecError(f"a load failed: {last}")
    facts: Row = json.loads(line)
    return facts


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
