"""Measures decoding with the weights in huge pages, and without.

Each run is a process. Both settings alternate; only ratios within one turn are meaningful.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError

_TURNS = 5
_DRAFTERS = ("none", "auto")
SETTINGS = ("on", "off")


def huge_pages(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare the grown target's speed and loading with huge pages and without, by runtime."""
    bundle = suite.bundles.bundle("int4", target=GROWN)
    gguf = suite.bundles.gguf("target", "q4_0", GROWN)
    places = {
        "onnx": (bundle, "CPUExecutionProvider"),
        "openvino": (bundle, "OpenVINO"),
        "gguf": (gguf, ""),
    }
    runs: dict[tuple[str, str, str], list[Row]] = {}
    for turn in range(_TURNS):
        for (name, place), drafter in product(places.items(), _DRAFTERS):
            for setting in SETTINGS[:: 1 if turn % 2 else -1]:
                found = _run(*place, drafter, setting)
                recorder.add(
                    kind="run", place=name, drafter=drafter, huge=setting, turn=turn, **found
                )
                runs.setdefault((name, drafter, setting), []).append(found)
    return recorder.table(
        row(name, drafter, *(runs[name, drafter, setting] for setting in SETTINGS))
        for name, drafter in product(places, _DRAFTERS)
    )


def row(place: str, drafter: str, on: list[Row], off: list[Row]) -> Row:
    """Return the medians of the ratios within a turn, and the difference of opening."""
    both = list(zip(on, off, strict=True))
    return {
        "place": place,
        "drafter": drafter,
        "tpot_ms": 1e3 * median(one["tpot_s"] for one in on),
        "of_small_pages": median(a["tpot_s"] / b["tpot_s"] for a, b in both),
        "open_s": median(one["open_s"] for one in on),
        "longer_s": median(a["open_s"] - b["open_s"] for a, b in both),
        "huge_mb": median(one["huge_bytes"] for one in on) / 1e6,
        "resident_mb": median(one["resident_bytes"] for one in on) / 1e6,
    }


def _run(model: Path, provider: str, drafter: str, setting: str) -> Row:
    command = [sys.executable, "-m", "benchmarks.sections._huge_pages_child"]
    done = subprocess.run(
        [*command, os.fspath(model), provider, drafter, setting],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        raise EdgedecError(f"huge pages {setting}: {last}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found
