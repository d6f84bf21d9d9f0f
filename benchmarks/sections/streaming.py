"""Measures a target larger than memory: paged by the system, streamed, and with drafts.

Each run is a process in a control group of its own, whose memory holds the process and a share of
the packed weights; all files are cold. The baseline is the system's paging of packed, mapped
weights, as written by ``edgedec prepare``. All runs are batch-invariant, so that all texts must be
equal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bundles import GROWN, LARGER, Suite
from benchmarks.sections.control_group import limited, run
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError
from edgedec.loading.sources import Models
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.runtimes._ort.packed import kept_bytes
from edgedec.runtimes.onnx import preparing
from edgedec.runtimes.onnx.streaming.opening import block_sizes
from edgedec.runtimes.onnx.streaming.prepared import prepared

SHARES = (0.6, 0.35)
# Block sizes; the larger model is rounded to nearest, since calibrating it takes six minutes.
_TARGETS = {GROWN: None, LARGER: 128}
MOST_PROMPTS = 3
_PLAIN_TOKENS, TOKENS = 12, 96
# Programs, libraries and the temporary memory of prefill: about the smallest amount with which the
# system kills no run, found by trial.
_PROGRAMS = {GROWN: 128 << 20, LARGER: 192 << 20}
# The same for llama.cpp, which reads a prompt in less memory.
_MAPPED_PROGRAMS = 32 << 20


def streaming(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure grown targets in memory for 60% and 35% of their packed weights."""
    rows = []
    for preset, block_size in _TARGETS.items():
        store = Storage.of(suite, recorder, preset, block_size)
        plain = store.runs.run("resident", None, None, draft=PLAIN)
        for share in SHARES:
            limit, held = store.limit(share)
            found = {
                "paged by the system": store.runs.run("paged", limit, None, draft=PLAIN),
                "streamed": store.runs.run("streamed", limit, held, draft=PLAIN),
                "streamed, drafts": store.runs.run("streamed, drafts", limit, held, draft="hybrid"),
            }
            for name, one in found.items():
                rows.append({
                    "target": preset,
                    "share": share,
                    "way": name,
                    "ms_per_token": 1e3 * one["tpot_s"],
                    "of_paged": found["paged by the system"]["tpot_s"] / one["tpot_s"],
                    "of_streamed": found["streamed"]["tpot_s"] / one["tpot_s"],
                    "of_resident": plain["tpot_s"] / one["tpot_s"],
                    "read_mb_per_pass": one["read_bytes_per_pass"] / 1e6,
                    "tokens_per_pass": one["tokens_per_pass"],
                    "identical": _same(plain["texts"], one["texts"]),
                })  # fmt: skip
                recorder.add(kind="row", packed_bytes=store.packed, limit_bytes=limit, **rows[-1])
    return rows


def streaming_gguf(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the grown target under llama.cpp's own mapping, in memory for 60% and 35% of it."""
    target, draft = suite.bundles.gguf("target", "q4_0", GROWN), suite.bundles.gguf("draft", "q8_0")
    options = {"draft": str(draft), "mmap": True}
    repacked = Runs(suite, recorder, target, [target, draft], options)
    runs = Runs(suite, recorder, target, [target, draft], {**options, "repack": False})
    resident = {
        "in memory, repacked": repacked.run("resident, repacked", None, None, draft=PLAIN),
        "in memory": runs.run("resident", None, None, draft=PLAIN),
    }
    size = target.stat().st_size
    process = resident["in memory"]["anonymous_bytes"] + _MAPPED_PROGRAMS
    texts = resident["in memory"]["texts"]
    rows: list[Row] = [{"way": name, **_paged(one, texts)} for name, one in resident.items()]
    for share in SHARES:
        limit = process + int(share * size)
        plain = runs.run("paged", limit, None, draft=PLAIN)
        drafted = runs.run("paged, drafts", limit, None, draft="hybrid")
        for name, one in (("paged", plain), ("paged, drafts", drafted)):
            of_plain = plain["tpot_s"] / one["tpot_s"]
            rows.append({"way": name, "share": share, "of_plain": of_plain, **_paged(one, texts)})
        # Repacked weights are a copy in the process's own memory.
        try:
            repacked.run("paged, repacked", limit, None, draft=PLAIN)
        except InputError as error:
            rows.append({"way": "paged, repacked", "share": share, "ended": str(error)})
    for row in rows:
        recorder.add(kind="row", file_bytes=size, process_bytes=process, **row)
    return rows


def _paged(found: dict[str, Any], texts: list[list[int]]) -> Row:
    return {
        "ms_per_token": 1e3 * found["tpot_s"],
        "read_mb_per_pass": found["read_bytes_per_pass"] / 1e6,
        "tokens_per_pass": found["tokens_per_pass"],
        "own_mb": found["anonymous_bytes"] / 1e6,
        "identical": _same(texts, found["texts"]),
    }


def _same(texts: list[list[int]], others: list[list[int]]) -> int:
    """Return how many texts agree with the others up to the shorter length."""
    both = zip(texts, others, strict=True)
    return sum(all(a == b for a, b in zip(*pair, strict=False)) for pair in both)


class Runs:
    """Runs of one pair, whose ``files`` are cold at the start of each."""

    def __init__(
        self,
        suite: Suite,
        recorder: Recorder,
        model: Path,
        files: Sequence[Path],
        options: Mapping[str, Any],
    ) -> None:
        self._suite, self._recorder, self._model = suite, recorder, model
        self._files, self._options = files, {**options, "threads": suite.threads}

    def run(self, name: str, limit: int | None, held: int | None, *, draft: str) -> dict[str, Any]:
        """Decode in a process of its own, with ``held`` bytes of weights in memory at once."""
        cool(self._files)
        options = {**self._options, "drafter": draft}
        if draft == PLAIN:
            options.pop("draft", None)
        task = {
            "bundle": str(self._model),
            "options": options | ({} if held is None else {"weight_memory": held}),
            "prompts": min(self._suite.prompts, MOST_PROMPTS),
            "tokens": _PLAIN_TOKENS if draft == PLAIN else TOKENS,
        }
        arguments = ["-m", "benchmarks.sections.streaming", json.dumps(task)]
        with nullcontext() if limit is None else limited(limit) as group:
            if limit is not None and group is None:
                raise InputError("no control group can be made: run as root")
            done = run(arguments, group)
            peak = None if group is None else group.peak
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
            raise InputError(f"{name} in {limit} bytes: {reason}")
        found: dict[str, Any] = json.loads(done.stdout)
        facts = {key: value for key, value in found.items() if key != "texts"}
        self._recorder.add(
            kind="run", way=name, limit_bytes=limit, weight_memory=held, peak_bytes=peak, **facts
        )
        return found


@dataclass(frozen=True, slots=True)
class Storage:
    """An exported pair whose target is streamed.

    Attributes:
        runs: batch-invariant runs of this pair.
        packed: bytes of the target's packed weights.
        process: bytes that the process needs in addition to the weights.

    """

    runs: Runs
    packed: int
    process: int

    @classmethod
    def of(
        cls, suite: Suite, recorder: Recorder, preset: str = GROWN, block_size: int | None = None
    ) -> Storage:
        """Prepare a grown target's files, and measure what its process needs."""
        bundle = suite.bundles.bundle("int4", target=preset, block_size=block_size)
        (source,) = Models.find(bundle, None).sources["target"]
        if kept_bytes(source.path) is None:
            preparing.prepare(source.path)
        packed = sum(block_sizes(source.path))
        kept = prepared(source.path)
        blocks = [path for one in kept for path in (one.graph, one.weights)]
        others = [p for p in blocks[0].parent.parent.parent.glob("packed/*/*") if p.is_file()]
        files = [*blocks, *others, *(p for p in source.path.parent.iterdir() if p.is_file())]
        runs = Runs(suite, recorder, bundle, files, {"batch_invariant": True})
        needed = runs.run("streamed, no limit", None, packed // 2, draft=PLAIN)
        return cls(runs, packed, needed["anonymous_bytes"] - packed // 2 + _PROGRAMS[preset])

    def limit(self, share: float) -> tuple[int, int]:
        """Return the bytes of all memory, and of weights in it, for a share of the weights."""
        held = int(share * self.packed)
        return self.process + held, held


def cool(files: Sequence[Path]) -> None:
    """Drop the files' pages from the page cache."""
    for file in files:
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# -- in the child process ------------------------------------------------------------------------


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Return seconds per token, bytes read per target pass, and the texts' tokens."""
    options = GenerateOptions(task["tokens"], ignore_eos=True)
    seconds, texts, passes, read = [], [], 0, 0
    with Pipeline.open(task["bundle"], plan="none", **task["options"]) as pipeline:
        for prompt in heldout_prompts(task["prompts"]):
            before = _read_bytes()
            done = pipeline.generate(prompt.text, options)
            read += _read_bytes() - before
            passes += done.metrics.target_passes
            seconds.append(done.metrics.tpot_s)
            texts.append(done.token_ids)
        anonymous = _anonymous_bytes()
    return {
        "tpot_s": sum(seconds) / len(seconds),
        "median_tpot_s": median(seconds),
        "read_bytes_per_pass": read / passes,
        "tokens_per_pass": sum(map(len, texts)) / passes,
        "anonymous_bytes": anonymous,
        "texts": texts,
    }


def _read_bytes() -> int:
    """Return the bytes that this process has read from the disk."""
    return int(Path("/proc/self/io").read_text("ascii").split("\nread_bytes: ")[1].split()[0])


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))  # noqa: T201
