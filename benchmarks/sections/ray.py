"""Measures a batch on a Ray cluster of this machine against local processes of as many cores.

Both sides run `edgedec generate` on the shipped pair, with a core for each process. The rate is
that of the middle four fifths of the results, so that neither side's start counts; the time to the
first result is a column of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.bundles import Suite
from benchmarks.ray_nodes import Nodes, cluster
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.models.demo.heldout import heldout_prompts

_TURNS, _WORKERS = 3, (1, 2, 4)
_TEXTS, _TOKENS = 120, 128
MANY = 10_000
_LOOK_S = 0.01

# Seconds since the start, and how many results there are.
Moment = tuple[float, int]


def ray(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare 1, 2 and 4 workers of a Ray cluster with local processes; 10,000 short prompts."""
    rates: dict[tuple[int, str], list[Row]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for workers in _WORKERS:
            with cluster(folder, workers) as nodes:
                for turn, how in product(range(_TURNS), ("local", "ray")):
                    own = folder / f"{workers}-{turn}-{how}"
                    found = batch(own, workers, nodes if how == "ray" else None)
                    recorder.add(kind="run", workers=workers, how=how, turn=turn, **found)
                    rates.setdefault((workers, how), []).append(found)
        with cluster(folder, 2) as nodes:
            grown = many(folder / "many", nodes)
        recorder.add(kind="many", **grown)
    rows = [row(count, rates[count, "ray"], rates[count, "local"]) for count in _WORKERS]
    return recorder.table([*rows, {"workers": 2, "prompts": MANY, **grown}])


def row(workers: int, there: Sequence[Row], here: Sequence[Row]) -> Row:
    """Return the medians; the overhead is that of a turn."""
    turns = zip(there, here, strict=True)
    return {
        "workers": workers,
        "prompts": _TEXTS,
        "texts_per_second": median(one["texts_per_second"] for one in there),
        "local_texts_per_second": median(one["texts_per_second"] for one in here),
        "overhead": median(b["texts_per_second"] / a["texts_per_second"] - 1 for a, b in turns),
        "first_s": median(one["first_s"] for one in there),
        "local_first_s": median(one["first_s"] for one in here),
    }


def batch(folder: Path, workers: int, nodes: Nodes | None, texts: int = _TEXTS) -> Row:
    """Decode prompts with so many processes, here or on a cluster."""
    folder.mkdir()
    prompts = [one.text for one in heldout_prompts(texts)]
    shares = [prompts] if nodes is not None else [prompts[n::workers] for n in range(workers)]
    command, env = ["-n", str(_TOKENS), "--threads", "1", "--plan", "none"], dict(os.environ)
    if nodes is not None:
        command, env = [*command, "--ray", nodes.address], nodes.env
    outs, running = [], []
    for number, share in enumerate(shares):
        outs.append(folder / f"out{number}.jsonl")
        running.append(_started(folder / f"in{number}.jsonl", share, outs[-1], command, env))
    moments = _watched(running, outs)
    return {"first_s": moments[0][0], "texts_per_second": middle_rate(moments, len(prompts))}


def middle_rate(moments: Sequence[Moment], texts: int) -> float:
    """Return the results per second between a tenth of them and nine tenths."""
    (begin, first), (end, last) = (
        next(one for one in moments if one[1] >= share * texts) for share in (0.1, 0.9)
    )
    return (last - first) / (end - begin)


def many(folder: Path, nodes: Nodes, prompts: int = MANY) -> Row:
    """Decode prompts of a token or two; return what driver and workers hold in the course of it."""
    folder.mkdir()
    share, out = [f"def f{n}(" for n in range(prompts)], folder / "out.jsonl"
    command = ["-n", "1", "--threads", "1", "--plan", "none", "--ray", nodes.address]
    driver = _started(folder / "in.jsonl", share, out, command, nodes.env)
    held: list[list[int]] = []
    # Once what is kept on both sides has its size, and near the end.
    due = [prompts // 5, prompts * 95 // 100]

    def look(done: int) -> None:
        if due and done >= due[0]:
            due.pop(0)
            held.append([_resident(driver.pid), max(map(_resident, nodes.workers()))])

    moments = _watched([driver], [out], look)
    before, after = held
    return {
        "texts_per_second": middle_rate(moments, prompts),
        "driver_mb": after[0] / 1e6,
        "driver_grown_mb": (after[0] - before[0]) / 1e6,
        "worker_mb": after[1] / 1e6,
        "worker_grown_mb": (after[1] - before[1]) / 1e6,
    }


def _started(
    file: Path, prompts: Sequence[str], out: Path, more: Sequence[str], env: dict[str, str]
) -> subprocess.Popen[bytes]:
    file.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in prompts), "utf-8")
    command = [sys.executable, "-m", "edgedec", "generate", "demo", "--prompts", str(file)]
    return subprocess.Popen(
        [*command, "--out", str(out), *more], env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _watched(
    running: Sequence[subprocess.Popen[bytes]],
    outs: Sequence[Path],
    look: Callable[[int], object] = lambda done: None,
) -> list[Moment]:
    """Return when results came, until all processes have ended."""
    began, moments, sizes, done = time.monotonic(), list[Moment](), dict.fromkeys(outs, 0), 0
    while True:
        ended = all(one.poll() is not None for one in running)
        for out in outs:
            with suppress(FileNotFoundError), out.open("rb") as file:
                file.seek(sizes[out])
                data = file.read()
                sizes[out] += len(data)
                done += data.count(b"\n")
        if done and (not moments or done > moments[-1][1]):
            moments.append((time.monotonic() - began, done))
            look(done)
        if ended:
            break
        time.sleep(_LOOK_S)
    if any(one.returncode for one in running) or not moments:
        raise EdgedecError("a batch failed: run the section's command by hand")
    return moments


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
