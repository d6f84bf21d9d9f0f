"""A process that opens and closes models hundreds of times holds no more than after a few."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

if not Path("/proc/self/fd").is_dir():
    pytest.skip("needs Linux's /proc", allow_module_level=True)
# What the runtimes keep between two openings, such as arenas of their threads, differs by this.
LEEWAY = {"descriptors": 4, "threads": 4, "bytes": 24_000_000}
OPENS = """
import gc, json, math, os, sys, threading
from edgedec import Pipeline
from edgedec.decoding.policy import cost
from edgedec.hardware.resident import release_free, resident_bytes

model, device, count, leaks = sys.argv[1], sys.argv[2] or None, int(sys.argv[3]), sys.argv[4:]
kept = []
cost._AGREE = math.inf  # passes are measured three times, whether they agree or not

def figures():
    gc.collect()
    release_free()
    found = {name: len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task")}
    return {"descriptors": found["fd"], "threads": found["task"], "bytes": resident_bytes()}

for number in range(count):
    with Pipeline.open(model, threads=2, device=device) as pipeline:
        pipeline.generate([1, 2, 3], max_new_tokens=3)
    if "leaks" in leaks:
        kept.append((open(os.devnull), bytearray(4 << 20)))
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if number == 9:
        early = figures()
print(json.dumps([early, figures()]))
os._exit(0)
"""


def grown(model: object, count: int, *leaks: str, device: str = "") -> dict[str, int]:
    """What a process holds more after so many openings than after ten."""
    command = [sys.executable, "-c", OPENS, str(model), device, str(count), *leaks]
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    early, late = json.loads(done.stdout)
    print(early, late)
    return {name: late[name] - early[name] for name in early}


def too_much(found: dict[str, int]) -> set[str]:
    return {name for name, most in LEEWAY.items() if found[name] > most}


MANY = pytest.param(300, marks=[pytest.mark.slow, pytest.mark.nightly])


@pytest.mark.parametrize("count", [pytest.param(20, marks=pytest.mark.full), MANY])
def test_of_onnx(count: int) -> None:
    assert not too_much(grown("demo", count))


@pytest.mark.parametrize("count", [pytest.param(20, marks=pytest.mark.full), MANY])
def test_of_gguf(tmp_path: Path, count: int) -> None:
    pytest.importorskip("llama_cpp")
    assert not too_much(grown(write_tiny_gguf(tmp_path / "a.gguf"), count))


@pytest.mark.slow
@pytest.mark.nightly
def test_of_openvino() -> None:
    pytest.importorskip("openvino")
    assert not too_much(grown("demo", 100, device="openvino"))


@pytest.mark.full
def test_a_twin_that_leaks_is_seen(tmp_path: Path) -> None:
    assert too_much(grown("demo", 20, "leaks")) == set(LEEWAY)
