"""Measures the time from starting `edgedec generate` to the first token it prints.

Each run is a process; commands take turns, and their files are in the page cache, since a warm-up
round is not counted. Byte code is compiled, as in an installed package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.bundles import Suite
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError

_TURNS = 10
_PROMPT = "def copy_file(source, target):"
LIBRARIES = "libraries imported"
# Imports that every generation needs, a lower bound of the time.
_IMPORTS = "import click, numpy, onnxruntime, tokenizers; print(1, flush=True)"
WAYS = {
    "interpreter": ("-c", "print(1, flush=True)"),
    LIBRARIES: ("-c", _IMPORTS),
    "edgedec --help": ("-m", "edgedec", "--help"),
    "edgedec generate": ("-m", "edgedec", "generate", "demo", _PROMPT, "-n", "1"),
}


def first_token(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare a model's first token with the import time of its libraries."""
    cache = suite.bundles.work / "first-token-cache"
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    model = str(suite.bundles.shipped())
    try:
        for turn in range(-1, _TURNS):
            for way in list(WAYS)[:: 1 if turn % 2 else -1]:
                seconds = _first_output(
                    [model if word == "demo" else word for word in WAYS[way]], cache
                )
                if turn >= 0:
                    recorder.add(kind="run", way=way, turn=turn, first_s=seconds)
                    found[way].append(seconds)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return recorder.table(_rows(found))


def _rows(found: dict[str, list[float]]) -> list[Row]:
    """Return each command's median, and its median ratio to the import time in the same turn."""
    of = {way: zip(each, found[LIBRARIES], strict=True) for way, each in found.items()}
    return [
        {
            "way": way,
            "first_s": median(found[way]),
            "of_libraries": median(seconds / imported for seconds, imported in pairs),
        }
        for way, pairs in of.items()
    ]


def _first_output(arguments: Sequence[str], cache: Path) -> float:
    """Run Python with these arguments; return the seconds until it has printed a byte."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    environment |= {
        "EDGEDEC_CACHE": os.fspath(cache),
        "XDG_CACHE_HOME": os.fspath(cache),
        "PYTHONPYCACHEPREFIX": os.fspath(cache / "bytecode"),
    }
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        printed = process.stdout.read(1)
        seconds = time.perf_counter() - begin
        _, errors = process.communicate()
    if process.returncode or not printed:
        reason = errors.decode(errors="replace").strip()[-200:]
        raise EdgedecError(f"{' '.join(arguments)}: {reason or 'it printed nothing'}")
    return seconds


_NOT_PASSED = ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
