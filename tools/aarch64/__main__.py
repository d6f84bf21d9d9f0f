"""Checks edgedec on emulated ARM processors, and counts the instructions of passes there.

python -m tools.aarch64 checks [cortex-a72 ...]     texts and rows, on each processor
python -m tools.aarch64 rows TARGET                 instructions by rows, of a bundle's target
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tools.aarch64.rows import counted
from tools.aarch64.system import CPUS, MissingError, System

_LIMIT_S = 600
# By name, the arguments of the emulated Python.
CHECKS: dict[str, list[str]] = {
    "imports": ["-c", "import edgedec, onnxruntime"],
    "a text": ["-m", "edgedec", "generate", "demo", "def read_lines(path):", "-n", "24"],
    "a text in which rows are independent": [
        "-m", "edgedec", "generate", "demo", "def f(", "-n", "24", "--batch-invariant",
    ],
    "texts with and without drafts": [
        "-m", "edgedec", "verify", "demo", "--count", "2", "-n", "24", "--batch-invariant",
    ],
    "rows do not depend on their pass": [
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        "tests/unit/runtimes/test_onnx_padding.py", "-k", "int4-llama or fp32-llama or find",
    ],
}  # fmt: skip


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.aarch64", description=__doc__)
    parser.add_argument("what", choices=("checks", "rows"))
    parser.add_argument("given", nargs="*", metavar="CPU | TARGET")
    asked = parser.parse_args()
    try:
        if asked.what == "rows":
            for name in CPUS:
                for target in asked.given:
                    print(name, target, counted(System(CPUS[name]), Path(target)))
            return 0
        return max([_checked(System(CPUS[name])) for name in asked.given or CPUS])
    except MissingError as error:
        print(f"no emulated ARM processor here: {error}")
        return 0


def _checked(system: System) -> int:
    failed = 0
    for name, arguments in CHECKS.items():
        begun, found = time.monotonic(), "ok"
        try:
            done = system.run(arguments, _LIMIT_S)
            if done.returncode:
                found = "FAILED: " + " | ".join((done.stdout + done.stderr).splitlines()[-4:])
        except subprocess.TimeoutExpired:
            found = f"FAILED: not done within {_LIMIT_S} s"
        failed += found != "ok"
        print(f"{system.cpu.name}: {name}: {found}, {time.monotonic() - begun:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
