"""Decodes in a child process and prints what it measured; see ``streaming``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from edgedec.bench.workloads import heldout_prompts
from edgedec.pipeline import GenerateOptions, Pipeline


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
    """Return what this process has caused to be read from the disk."""
    return int(Path("/proc/self/io").read_text("ascii").split("\nread_bytes: ")[1].split()[0])


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))  # noqa: T201
