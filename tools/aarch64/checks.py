"""What is run on an emulated ARM processor: texts, and those tests that the processor can fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tools.aarch64 import groups
from tools.aarch64.system import System

# Arguments of the emulated Python, or a function that returns what goes wrong, "" if nothing does.
Check = Sequence[str] | Callable[[System], str]
_LIMIT_S = 900
_EDGEDEC = ("-m", "edgedec")
_PYTEST = (
    "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "slow or not slow",
)  # fmt: skip
_ROWS = "tests/unit/runtimes/test_onnx_padding.py"
QUICK: dict[str, Check] = {
    "import": ("-c", "import edgedec, onnxruntime"),
    "a text": (*_EDGEDEC, "generate", "demo", "def read_lines(path):", "-n", "24"),
    "texts with and without drafts": (
        *_EDGEDEC, "verify", "demo", "--count", "1", "-n", "24", "--batch-invariant",
    ),
    "rows of int4": (*_PYTEST, _ROWS, "-k", "int4-llama"),
}  # fmt: skip
CHECKS: dict[str, Check] = QUICK | {
    "rows of other weights": (*_PYTEST, _ROWS, "-k", "fp32-llama or int8-llama or find"),
    "every drafter, to the last bit": ("-m", "tools.aarch64.texts"),
    "contract of sessions": (*_PYTEST, "tests/contract/test_onnx.py"),
    "saved texts": (*_PYTEST, "tests/unit/pipeline/test_saved_texts.py"),
    "a text within a limit on memory": (
        *_EDGEDEC, "generate", "demo", "def f(x):", "-n", "16", "--memory", "700MB",
        "--plan", "none",
    ),
    **{
        f"a text in a control group of {size} GB": partial(groups.problem, limit=size * groups.GB)
        for size in (1, 2)
    },
    "files of strangers": (
        *_PYTEST, "tests/unit/runtimes/test_onnx_trust.py", "tests/cli/test_cli_untrusted.py",
    ),
}  # fmt: skip


def failed(system: System, checks: Mapping[str, Check]) -> list[str]:
    """Run checks, print a line for each, and return the names of those that failed."""
    found = []
    for name, check in checks.items():
        begun = time.monotonic()
        try:
            problem = _problem(system, check)
            said = f"FAILED: {problem}" if problem else "ok"
        except groups.LeftOutError as error:
            problem, said = "", f"left out: {error}"
        found += [name] if problem else []
        print(f"{system.cpu.name}: {name}: {said}, {time.monotonic() - begun:.0f} s", flush=True)
    return found


def _problem(system: System, check: Check) -> str:
    """Return why a check failed; "" if it did not."""
    try:
        if callable(check):
            return check(system)
        done = system.run(check, _LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"not done within {_LIMIT_S} s"
    if done.returncode == 0:
        return ""
    return " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:]) or "no word"
