"""Measures decoding while other processes compute, by how the runtime's threads wait.

Each run is a process, since OpenMP reads its settings once. Settings alternate, with and without
two busy processes; only ratios within one round of settings are meaningful.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.records import Recorder
from edgedec.errors import EdgedecError

_TURNS = 3
_TOKENS = 16
_BUSY = 2
_LIMIT_S = 58  # no busy process outlives this
_LOOP = f"import time; end = time.monotonic() + {_LIMIT_S}\nwhile time.monotonic() < end: pass"
_USERS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# GNU OpenMP's default.
_LONG = {"GOMP_SPINCOUNT": "300000"}


@dataclass(frozen=True, slots=True)
class WaitSetting:
    """How the threads of a runtime wait.

    Attributes:
        name: for the table.
        format: format of the model.
        environment: environment variables.
        spin_us: spinning time of ONNX Runtime's threads; empty is our default.

    """

    name: str
    format: str
    environment: Mapping[str, str] = field(default_factory=dict)
    spin_us: str = ""


SETTINGS = (
    WaitSetting("gguf, OpenMP's default", "gguf", _LONG),
    WaitSetting("gguf, chosen by load", "gguf"),
    WaitSetting("gguf, passive", "gguf", {"OMP_WAIT_POLICY": "passive"}),
    WaitSetting("onnx, 100 us as chosen", "onnx"),
    WaitSetting("onnx, 2000 us", "onnx", spin_us="2000"),
    WaitSetting("onnx, 10 us", "onnx", spin_us="10"),
)


def busy(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Measure plain decoding of the grown target with and without two computing processes."""
    models = {
        "gguf": suite.bundles.alone("gguf", "target", "q4_0", GROWN),
        "onnx": suite.bundles.alone("onnx", "target", "int4", GROWN),
    }
    seconds: dict[tuple[str, int], list[float]] = {}
    for turn in range(_TURNS):
        for load in (0, _BUSY):
            for setting in SETTINGS[:: 1 if turn % 2 else -1]:
                with others(load):
                    found = decode(setting, models[setting.format])
                recorder.add(kind="run", setting=setting.name, others=load, turn=turn, **found)
                seconds.setdefault((setting.name, load), []).append(found["tpot_s"])
    return recorder.table(_row(setting.name, seconds) for setting in SETTINGS)


def _row(name: str, seconds: Mapping[tuple[str, int], list[float]]) -> dict[str, Any]:
    """Return tokens per second in the median round, alone and with other processes."""
    return {
        "setting": name,
        "tokens_per_second_alone": 1 / median(seconds[name, 0]),
        "tokens_per_second_with_others": 1 / median(seconds[name, _BUSY]),
    }


@contextmanager
def others(count: int) -> Iterator[None]:
    """Run ``count`` processes that only compute, and end them afterwards."""
    running = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def decode(setting: WaitSetting, bundle: Path) -> dict[str, Any]:
    """Decode once, in a child process."""
    environment = {k: v for k, v in os.environ.items() if k not in _USERS} | dict(
        setting.environment
    )
    command = [sys.executable, "-m", "benchmarks.sections._busy_child", os.fspath(bundle)]
    done = subprocess.run(
        [*command, str(_TOKENS), setting.spin_us],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise EdgedecError(f"{setting.name}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
