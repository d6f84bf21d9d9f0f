"""Counts the instructions of a target's passes by their rows, on an emulated processor.

How fast a processor executes them, and how long it waits for memory, nobody can tell without it: a
pass that waits for its weights gains less time from fewer rows than these counts say.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.aarch64.system import WORK, MissingError, System

WIDTHS = (1, 2, 4, 8, 16)
_LIMIT_S = 1800
_SOURCE = Path(__file__).with_name("instructions.c")


def counted(system: System, target: Path) -> dict[int, int]:
    """Return the instructions of one thread's pass, by rows, after 64 tokens."""
    if shutil.which("gcc") is None:
        raise MissingError("gcc is not installed, which makes the plugin that counts")
    plugin = WORK / "instructions.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, _SOURCE], check=True)
    done = system.run(["-m", "tools.aarch64.rows", target], _LIMIT_S, plugin)
    if done.returncode:
        raise MissingError(done.stderr.strip().splitlines()[-1])
    counts = [int(line.split()[1]) for line in done.stderr.splitlines() if line[:5] == "instr"]
    passes = [after - before for before, after in zip(counts[::2], counts[1::2], strict=True)]
    # The first pass of each width prepares its buffers.
    return dict(zip(WIDTHS, passes[1::2], strict=True))


def _passes(target: Path) -> None:
    """Run two passes of each width between two calls that the plugin notices."""
    from edgedec.decoding.tree import TokenTree
    from edgedec.records.load import LoadOptions
    from edgedec.runtimes import registry

    session = registry.load("onnx", target, LoadOptions(threads=1)).open(128)
    session.prefill(list(range(1, 65)))
    for width in (width for width in WIDTHS for _ in range(2)):
        tree = TokenTree.chain([7] * width)
        os.getppid()
        session.forward(tree)
        os.getppid()
        session.commit([0])
        session.rollback(64)


if __name__ == "__main__":
    _passes(Path(sys.argv[1]))
