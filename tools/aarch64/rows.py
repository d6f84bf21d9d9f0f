"""Counts the instructions of passes by their rows, on emulated processors.

How fast a processor executes them, and how long it waits for memory, nobody can tell without it: a
pass that waits for its weights gains less time from fewer rows than these counts say.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.aarch64.debian import CPUS
from tools.aarch64.llamacpp import built
from tools.aarch64.system import REPOSITORY, WORK, MissingError, System

WIDTHS = (1, 2, 4, 8, 16)
RECORDS, NAME = REPOSITORY / "docs" / "measurements", "arm_rows"
Weights = tuple[str, int | None]
# The demo's target, by its weights and their block size.
WEIGHTS: tuple[Weights, ...] = (("int4", 128), ("int4", 32), ("int8", None), ("fp32", None))
GGUF_WEIGHTS: tuple[Weights, ...] = (("q4_0", None), ("q8_0", None))
CHECKPOINT = REPOSITORY / "models" / "demo" / "target"
TARGETS = WORK.with_name("arm_targets")
_CONTEXT, _LIMIT_S = 64, 600
_SOURCE = Path(__file__).with_name("instructions.c")


class CountError(Exception):
    """The emulated program failed; the message is its last line."""


def record() -> Iterator[dict[str, Any]]:
    """Count the passes of the demo's target on every processor; write and yield each figure.

    Raises:
        MissingError: there is no emulator or compiler here.
        CountError: the emulated program failed.

    """
    from edgedec.compare.records import recording

    plugin = compiled(WORK.with_name("instructions.so"))
    with recording(RECORDS, NAME) as recorder:
        for (weights, block), cpu in itertools.product(WEIGHTS + GGUF_WEIGHTS, CPUS.values()):
            packages = built(cpu) if (weights, block) in GGUF_WEIGHTS else None
            for way in ("none",) if packages else ("none", "padded"):
                words: list[str | Path] = [
                    "-m",
                    "tools.aarch64.rows",
                    exported(weights, block),
                    way,
                ]
                padding, counts = _counted(System(cpu).run(words, _LIMIT_S, plugin, packages))
                row = {"cpu": cpu.name, "weights": weights, "block_size": block, "padding": padding}
                recorder.add(kind="rows", **row, context=_CONTEXT, instructions=counts)
                yield {**row, "instructions": counts}


def compiled(plugin: Path) -> Path:
    """Compile the plugin that counts, and return it."""
    plugin.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]
    try:
        subprocess.run([*command, str(plugin), str(_SOURCE)], check=True)
    except FileNotFoundError:
        raise MissingError("gcc is not installed: on Debian, apt install gcc") from None
    return plugin


def counts_of(printed: str) -> dict[int, int]:
    """Return a pass's instructions by rows, from what the plugin printed around each pass."""
    counts = [int(line.split()[1]) for line in printed.splitlines() if line[:12] == "instructions"]
    passes = [after - before for before, after in zip(counts[::2], counts[1::2], strict=True)]
    # The first of two passes prepares its buffers.
    return dict(zip(WIDTHS, passes[1::2], strict=True))


def exported(weights: str, block: int | None, checkpoint: Path = CHECKPOINT) -> Path:
    """Export a target, in ONNX so that its attention can be padded; return its path."""
    name = f"{weights}-{block or 0}"
    out = TARGETS / (name if checkpoint == CHECKPOINT else f"{checkpoint.name}-{name}")
    gguf = (weights, block) in GGUF_WEIGHTS
    if not out.exists():
        words = ["export", checkpoint, "--out", out, "--weights", weights]
        words += ["--format", "gguf"] if gguf else ["--batch-invariant"]
        words += [] if block is None else ["--block-size", block]
        command = [sys.executable, "-m", "edgedec", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True)
    return out / "target" / ("model.gguf" if gguf else "model.onnx")


def _counted(done: subprocess.CompletedProcess[str]) -> tuple[str, dict[int, int]]:
    """Return the padding of passes, and their instructions."""
    if done.returncode:
        raise CountError("".join(done.stderr.strip().splitlines()[-1:]))
    return done.stdout.strip(), counts_of(done.stderr)


def _passes(target: Path, *, padded: bool) -> None:
    """Run two passes of each width on one thread, between two calls that the plugin notices."""
    from edgedec.decoding.tree import TokenTree
    from edgedec.records.load import LoadOptions
    from edgedec.runtimes import registry

    onnx = target.suffix == ".onnx"
    options = LoadOptions(threads=1, batch_invariant=padded if onnx else None)
    model: Any = registry.load("onnx" if onnx else "gguf", target, options)
    print(model.padding.name if onnx else "none")
    session = model.open(2 * _CONTEXT)
    session.prefill(list(range(1, _CONTEXT + 1)))
    for width in (width for width in WIDTHS for _ in range(2)):
        tree = TokenTree.chain([7] * width)
        os.getppid()
        session.forward(tree)
        os.getppid()
        session.commit([0])
        session.rollback(_CONTEXT)


if __name__ == "__main__":
    _passes(Path(sys.argv[1]), padded=sys.argv[2] == "padded")
